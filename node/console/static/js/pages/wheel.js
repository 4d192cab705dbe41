// What falls due when: the wheel as a picture, from the next seconds to the years.

import { get } from "../client.js";
import { dial, share } from "../dial.js";
import { empty, h, put, table } from "../dom.js";
import { clock, count, date, instant, number, relative, short, span } from "../format.js";

const S = 1_000;
const MIN = 60 * S;
const HOUR = 60 * MIN;
const DAY = 24 * HOUR;
const SCALES = {
  minute: ["Minute", 60 * S, S],
  hour: ["Hour", HOUR, MIN],
  day: ["Day", DAY, 30 * MIN],
  month: ["Month", 30 * DAY, DAY],
  year: ["Year", 52 * 7 * DAY, 7 * DAY],
};
const STEPS = [S, 2 * S, 3 * S, 5 * S, 10 * S, 15 * S, 30 * S, MIN, 2 * MIN, 3 * MIN, 5 * MIN]
  .concat([10 * MIN, 15 * MIN, 30 * MIN, HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY]);
const STEP_COUNT_MAX = 60;
const AHEAD = ["Next minute", "A minute to an hour", "An hour to a day", "A day to a year"];

/** The step in which a stretch of time is shown. */
function stepOf(spanMs) {
  return STEPS.find((one) => spanMs / one <= STEP_COUNT_MAX) ?? 7 * DAY;
}

/** The window that the address names: a scale from now on, or a stretch that was zoomed into. */
function windowOf(words, nowMs) {
  if (words[0] === "from") {
    const [fromMs, spanMs] = words.slice(1).map(Number);
    if (fromMs > 0 && spanMs >= S) {
      const stepMs = stepOf(spanMs);
      return { scale: "", fromMs, stepMs, count: Math.max(1, Math.round(spanMs / stepMs)) };
    }
  }
  const scale = SCALES[words[0]] ? words[0] : "hour";
  const [, spanMs, stepMs] = SCALES[scale];
  const count = Math.round(spanMs / stepMs);
  return { scale, fromMs: nowMs - (nowMs % stepMs), stepMs, count };
}

/** An instant, as exactly as the step needs. */
function at(ms, stepMs) {
  if (stepMs >= DAY) return date(ms);
  if (stepMs >= MIN) return `${date(ms).slice(5)} ${clock(ms).slice(0, 5)}`;
  return clock(ms);
}

export function wheelPage({ root, state, words: place, signal }) {
  const lead = h("p", { class: "lead" });
  const tabs = h("div", { class: "tabs", role: "group", "aria-label": "How far ahead" });
  const trail = h("nav", { class: "trail", "aria-label": "Zoom" });
  const ahead = h("ol", { class: "ahead" });
  const listBox = h("details", { class: "as-table" });
  const list = h("div");
  let shown = null;

  const picture = dial({
    title: "Messages by due time. Arrow keys move, Enter zooms in.",
    canZoom: () => shown !== null && shown.stepMs > S,
    onZoom: (which) => {
      const fromMs = shown.fromMs + which * shown.stepMs;
      location.hash = `#/wheel/from/${fromMs}/${shown.stepMs}`;
    },
  });

  put(listBox, h("summary", null, "Show as a table"), list);
  put(
    tabs,
    Object.entries(SCALES).map(([name, [title]]) =>
      h("a", { href: `#/wheel/${name}`, "data-scale": name }, title),
    ),
  );
  put(
    root,
    h("div", { class: "page-head" }, h("h1", null, "Wheel"), lead),
    h("div", { class: "wheel-tools" }, tabs, trail),
    h(
      "div",
      { class: "wheel" },
      picture.element,
      h("section", { class: "card" }, h("h2", null, "Ahead"), ahead),
    ),
    listBox,
  );

  function drawTrail(window) {
    put(
      trail,
      window.scale
        ? null
        : [
            h("button", { type: "button", onclick: () => history.back() }, "Zoom out"),
            h("span", null, `${instant(window.fromMs)}, ${span(window.stepMs * window.count)}`),
          ],
    );
    for (const tab of tabs.children) {
      if (tab.dataset.scale === window.scale) tab.setAttribute("aria-current", "true");
      else tab.removeAttribute("aria-current");
    }
  }

  function drawAhead(found) {
    const counts = found.ahead_counts;
    const most = Math.max(found.later_count, found.overdue_count, ...counts);
    const rows = [
      ...AHEAD.map((title, index) => [title, counts[index]]),
      ["Later than a year", found.later_count],
    ];
    if (found.overdue_count) rows.unshift(["Overdue", found.overdue_count]);
    put(
      ahead,
      rows.map(([title, value]) => h("li", null, h("span", null, title), share(value, most))),
      found.cancelled_count
        ? h(
            "li",
            { class: "note" },
            `${count(found.cancelled_count, "cancelled message")} counted here, too: `,
            "they stay in the wheel until they would have been due.",
          )
        : null,
    );
  }

  async function refresh() {
    const nowMs = state.cluster?.now_ms ?? Date.now();
    const window = windowOf(place, nowMs);
    const { fromMs, stepMs } = window;
    const found = await get(
      "wheel",
      { from_ms: fromMs, step_ms: stepMs, count: window.count },
      signal,
    );
    shown = window;
    const inside = found.counts.reduce((sum, one) => sum + one, 0);
    const steps = found.counts.map((value, index) => {
      const isEstimate = found.are_estimates[index];
      const when = at(fromMs + index * stepMs, stepMs);
      const about = isEstimate ? "about " : "";
      return {
        count: value,
        isEstimate,
        when,
        name: `${when}, ${span(stepMs)}: ${about}${count(value, "message")}`,
      };
    });
    const quarter = window.count / 4;
    const labels = [0, 1, 2, 3].map((part) => ({
      at: part * quarter,
      text:
        part === 0 && window.scale
          ? "now"
          : window.scale
            ? `+${span(part * quarter * stepMs)}`
            : at(fromMs + part * quarter * stepMs, stepMs),
    }));
    const whole = span(stepMs * window.count);
    const scale = window.scale ? `in the next ${window.scale}` : `within ${whole}`;
    const words = inside === 1 ? "message due" : "messages due";
    picture.draw(steps, labels, [short(inside), words, scale]);
    drawTrail(window);
    drawAhead(found);
    const next = state.cluster?.shard?.next_due_ms;
    put(
      lead,
      `${count(found.pending_count, "message")} pending`,
      next ? `; the next one is due ${relative(next, found.now_ms)}.` : ".",
    );
    const filled = steps.filter((one) => one.count);
    put(
      list,
      filled.length
        ? table(
            "Messages by due time",
            [
              { title: "Due from", cell: (one) => one.when },
              {
                title: "Messages",
                number: true,
                cell: (one) => `${one.isEstimate ? "about " : ""}${number(one.count)}`,
              },
            ],
            filled,
          )
        : empty("Nothing falls due here", "Another stretch of time may have more."),
    );
  }

  return { refresh };
}
