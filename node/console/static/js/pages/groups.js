// Consumer groups: what each has still to do, and what it gave up.

import { empty, h, put, table } from "../dom.js";
import { count, number, span } from "../format.js";
import { listing } from "./listing.js";

/** Words that stay on one line. */
const whole = (words) => words.replaceAll(" ", "\u00a0");

export function groupsPage(context) {
  const opened = new Set();

  function lags(group) {
    const details = h("details", { class: "lags" });
    details.open = opened.has(group.name);
    details.addEventListener("toggle", () => {
      if (details.open) opened.add(group.name);
      else opened.delete(group.name);
    });
    return put(
      details,
      h(
        "summary",
        null,
        count(group.lags.length, "topic"),
        h("span", { class: "unseen" }, ` of ${group.name}`),
      ),
      table(
        `Topics of ${group.name}`,
        [
          { title: "Topic", cell: (one) => one.topic || "(deleted)" },
          { title: "Wants", cell: (one) => h("code", null, one.filter) },
          { title: "To do", number: true, cell: (one) => number(one.unresolved_count) },
          { title: "Leased", number: true, cell: (one) => number(one.leased_count) },
          {
            title: "Oldest",
            cell: (one) => (one.oldest_age_ms ? whole(span(one.oldest_age_ms)) : "none"),
          },
        ],
        group.lags,
      ),
    );
  }

  return listing(context, {
    name: "groups",
    title: "Groups",
    lead: "Each group gets every message once, and again if it does not acknowledge it.",
    show: ({ groups }, search) =>
      groups.length
        ? table(
            "Consumer groups",
            [
              { title: "Group", cell: (one) => h("span", { class: "name" }, one.name) },
              { title: "To do", number: true, cell: (one) => number(one.unresolved) },
              { title: "Leased", number: true, cell: (one) => number(one.leased) },
              {
                title: "Dead letters",
                number: true,
                cell: (one) =>
                  h(
                    "span",
                    one.dead_letters ? { class: "mark", "data-level": "bad" } : null,
                    number(one.dead_letters),
                  ),
              },
              {
                title: "Unreadable",
                number: true,
                cell: (one) => number(one.damaged),
              },
              {
                title: "Deliveries",
                cell: deliveries,
              },
              { title: "Again after", cell: retryDelays },
              { title: "Topics", cell: (one) => (one.lags.length ? lags(one) : "none yet") },
            ],
            groups,
          )
        : search
          ? empty("No group is called so", `Nothing has "${search}" in its name.`)
          : empty("No groups yet", "The first consumer that receives makes its group."),
  });
}

function deliveries(one) {
  const limits = [
    one.in_flight_max ? `${number(one.in_flight_max)} held at a time` : "",
    one.per_second_max ? `${number(one.per_second_max)} a second` : "",
  ].filter(Boolean);
  const each = `up to ${one.attempts_max}, each leased for ${whole(span(one.invisible_ms))}`;
  return limits.length ? `${each}; at most ${limits.join(", ")}` : each;
}

function retryDelays(one) {
  const steps = one.retry_delays_ms.map((each) => whole(span(each)));
  const shown = steps.length > 4 ? [...steps.slice(0, 3), "...", steps.at(-1)] : steps;
  const delays = steps.length
    ? shown.join(", ")
    : `${whole(span(one.retry_delay_ms))}, doubled up to ${whole(span(one.retry_delay_ms_max))}`;
  return one.retry_jitter_percent ? `${delays}, +${one.retry_jitter_percent}% at most` : delays;
}
