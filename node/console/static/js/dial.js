// The wheel as a picture: a ring of spokes, one for each step of time, from the top clockwise. The
// longer a spoke, the more messages fall due in it.

import { h, put, s } from "./dom.js";
import { short } from "./format.js";

const SIZE = 480;
const SIDE = 34; // room for words beside it
const MIDDLE = SIZE / 2;
const INNER = 104;
const OUTER = 200;
const LABELS = 218;
const GAP = 0.16;

function polar(angle, radius) {
  return [MIDDLE + radius * Math.sin(angle), MIDDLE - radius * Math.cos(angle)];
}

function wedge(from, to, inner, outer) {
  const at = (angle, radius) => polar(angle, radius).map((one) => one.toFixed(2)).join(" ");
  const large = to - from > Math.PI ? 1 : 0;
  return (
    `M${at(from, inner)}L${at(from, outer)}A${outer} ${outer} 0 ${large} 1 ${at(to, outer)}` +
    `L${at(to, inner)}A${inner} ${inner} 0 ${large} 0 ${at(from, inner)}Z`
  );
}

/**
 * A dial that can be drawn again: {element, draw(steps, labels, middle)}.
 *
 * `steps`: [{count, name, isEstimate, isPast}]; `labels`: [{at, text}], `at` in steps;
 * `middle`: lines of text. `onZoom(at)` is called for the step that was chosen; `canZoom()`.
 */
export function dial({ title, onZoom, canZoom }) {
  const ring = s("g", { class: "ring" });
  const spokes = s("g", { role: "group", "aria-label": title });
  const texts = s("g", { class: "dial-labels", "aria-hidden": "true" });
  const centre = s("g", { class: "dial-middle", "aria-hidden": "true" });
  const svg = s("svg", { viewBox: `${-SIDE} 0 ${SIZE + 2 * SIDE} ${SIZE}`, class: "dial" });
  put(svg, ring, spokes, texts, centre);
  const hint = h("p", { class: "dial-hint", "aria-hidden": "true" });
  const element = h("div", { class: "dial-box" }, svg, hint);
  let made = [];
  let active = 0;
  let middleNow = [];

  put(
    ring,
    [INNER, (INNER + OUTER) / 2, OUTER].map((radius) =>
      s("circle", { cx: MIDDLE, cy: MIDDLE, r: radius }),
    ),
  );

  function focus(at) {
    active = (at + made.length) % made.length;
    made.forEach((one, index) => one.setAttribute("tabindex", index === active ? "0" : "-1"));
    made[active].focus();
  }

  svg.addEventListener("keydown", (event) => {
    const moves = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
    if (moves[event.key]) focus(active + moves[event.key]);
    else if (event.key === "Home") focus(0);
    else if (event.key === "End") focus(made.length - 1);
    else if ((event.key === "Enter" || event.key === " ") && canZoom()) onZoom(active);
    else return;
    event.preventDefault();
  });

  function showMiddle(lines) {
    put(
      centre,
      lines.map((line, at) =>
        s(
          "text",
          { x: MIDDLE, y: MIDDLE + 6 + (at - (lines.length - 1) / 2) * 26, class: `line-${at}` },
          line,
        ),
      ),
    );
  }

  function makeSpokes(count) {
    const turn = (2 * Math.PI) / count;
    made = Array.from({ length: count }, (_, at) => {
      const group = s("g", { class: "spoke", role: "button" });
      const from = at * turn + (turn * GAP) / 2;
      const to = (at + 1) * turn - (turn * GAP) / 2;
      put(
        group,
        s("path", { class: "reach", d: wedge(at * turn, (at + 1) * turn, INNER - 8, OUTER + 6) }),
        s("path", { class: "bed", d: wedge(from, to, INNER, OUTER) }),
        s("path", { class: "bar" }),
      );
      const tell = () => {
        hint.textContent = group.getAttribute("aria-label");
        svg.dataset.active = "";
      };
      group.addEventListener("focus", () => {
        active = at;
        tell();
      });
      group.addEventListener("pointerenter", tell);
      group.addEventListener("click", () => canZoom() && onZoom(at));
      return group;
    });
    active = 0;
    put(spokes, made);
  }

  svg.addEventListener("pointerleave", () => {
    hint.textContent = "";
  });

  function draw(steps, labels, middle) {
    if (made.length !== steps.length) makeSpokes(steps.length);
    const turn = (2 * Math.PI) / steps.length;
    const most = Math.max(1, ...steps.map((one) => one.count));
    steps.forEach((step, at) => {
      const group = made[at];
      // By the square root: of two spokes the area tells which is how much more.
      const part = step.count ? Math.max(0.04, Math.sqrt(step.count / most)) : 0;
      const bar = group.lastChild;
      const from = at * turn + (turn * GAP) / 2;
      const to = (at + 1) * turn - (turn * GAP) / 2;
      bar.setAttribute(
        "d",
        part ? wedge(from, to, INNER, INNER + part * (OUTER - INNER)) : "M0 0",
      );
      group.setAttribute("aria-label", step.name);
      group.setAttribute("tabindex", at === active ? "0" : "-1");
      group.classList.toggle("estimate", step.isEstimate);
      group.classList.toggle("zoomable", canZoom());
      group.style.setProperty("--part", part.toFixed(3));
    });
    put(
      texts,
      labels.map(({ at, text }) => {
        const [x, y] = polar(at * turn, LABELS);
        const side = Math.sin(at * turn);
        const anchor = side > 0.3 ? "start" : side < -0.3 ? "end" : "middle";
        return s("text", { x, y: y + 4, "text-anchor": anchor }, text);
      }),
    );
    if (middle.join() !== middleNow.join()) showMiddle((middleNow = middle));
  }

  return { element, draw };
}

/** A small bar of one count among others, beside its number. */
export function share(count, most) {
  return h(
    "span",
    { class: "share" },
    h("span", { class: "share-bar", vars: { "--part": most ? count / most : 0 } }),
    h("span", null, short(count)),
  );
}
