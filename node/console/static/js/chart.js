// Lines over time, as SVG. Each line is a list of {at_ms, value}; null breaks it.

import { h, put, s } from "./dom.js";
import { clock } from "./format.js";

const WIDTH_MIN = 240;
const HEIGHT = 150;
const LEFT = 56;
const BOTTOM = 20;
const TOP = 10;

const isValue = (point) => point !== undefined && point.value !== null;

/** A round number at or above `value`: the top of the scale. */
function roundUp(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((one) => one * power).find((one) => one >= value);
}

/**
 * A chart that can be drawn again: {element, draw(lines, fromMs, toMs)}.
 * `lines`: [{name, style, points}]; `nothing`: what to say where they have no values.
 */
export function chart(title, format, nothing = "Nothing happened in this time.") {
  const box = h("div", { class: "chart-box" });
  const legend = h("div", { class: "legend" });
  const element = h(
    "figure",
    { class: "chart" },
    h("figcaption", null, h("span", null, title), legend),
    box,
  );

  function draw(lines, fromMs, toMs) {
    const values = lines.flatMap((one) => one.points.map((point) => point.value ?? 0));
    put(
      legend,
      lines.map((one) => {
        const last = one.points.at(-1)?.value;
        return h(
          "span",
          { class: `key ${one.style}` },
          one.name,
          h("b", null, last === undefined || last === null ? "-" : format(last)),
        );
      }),
    );
    if (lines.every((one) => one.points.length < 2)) {
      put(box, h("p", { class: "chart-empty" }, "Collecting: two looks are needed for a rate."));
      return;
    }
    if (!lines.some((one) => one.points.some((point) => point.value !== null))) {
      put(box, h("p", { class: "chart-empty" }, nothing));
      return;
    }
    const top = roundUp(Math.max(...values));
    // As wide as there is room, so that its words are not scaled.
    const width = Math.max(WIDTH_MIN, box.clientWidth);
    const x = (ms) => LEFT + ((ms - fromMs) / (toMs - fromMs)) * (width - LEFT - 6);
    const y = (value) => TOP + (1 - value / top) * (HEIGHT - TOP - BOTTOM);
    const grid = [0, 0.5, 1].map((part) => [
      s("line", { class: "grid", x1: LEFT, x2: width - 6, y1: y(top * part), y2: y(top * part) }),
      s("text", { x: LEFT - 6, y: y(top * part) + 3.5, class: "left" }, format(top * part)),
    ]);
    const times = [0, 0.5, 1].map((part) =>
      s(
        "text",
        {
          x: x(fromMs + part * (toMs - fromMs)),
          y: HEIGHT - 4,
          class: ["from", "middle", "to"][part * 2],
        },
        clock(fromMs + part * (toMs - fromMs)),
      ),
    );
    const paths = lines.map((one) => {
      let d = "";
      let isBroken = true;
      for (const point of one.points) {
        if (point.value === null) {
          isBroken = true;
          continue;
        }
        d += `${isBroken ? "M" : "L"}${x(point.at_ms).toFixed(1)} ${y(point.value).toFixed(1)}`;
        isBroken = false;
      }
      return s("path", { d, class: `line ${one.style}` });
    });
    // A value between two gaps is no line.
    const lone = lines.map((one) =>
      one.points
        .filter(
          (point, at) =>
            isValue(point) && !isValue(one.points[at - 1]) && !isValue(one.points[at + 1]),
        )
        .map((point) =>
          s("circle", {
            cx: x(point.at_ms),
            cy: y(point.value),
            r: 2.5,
            class: `lone ${one.style}`,
          }),
        ),
    );
    const words = lines
      .map((one) => `${one.name}: ${format(one.points.at(-1)?.value ?? 0)}`)
      .join(", ");
    put(
      box,
      s(
        "svg",
        { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": `${title}. Now: ${words}` },
        grid,
        times,
        paths,
        lone,
      ),
    );
  }

  return { element, draw };
}
