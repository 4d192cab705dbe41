// Consumer groups: what each has still to do, and what it gave up; where it begins anew.

import { confirm, toast } from "../ask.js";
import { post } from "../client.js";
import { empty, field, h, put, table } from "../dom.js";
import { count, number, span } from "../format.js";
import { listing } from "./listing.js";

/** Words that stay on one line. */
const whole = (words) => words.replaceAll(" ", "\u00a0");

export function groupsPage(context) {
  const opened = new Set();

  /** First where, then what that comes to, and only then it is done. */
  async function beginAnew(group, topic) {
    const option = (value, words) => h("option", { value }, words);
    const where = h(
      "select",
      null,
      option("now", "now: it skips all that it has to do"),
      option("first", "the first message that is still there"),
      option("time", "what was released at an instant, or later"),
    );
    const at = h("input", { type: "datetime-local", step: "1" });
    const isChosen = await confirm({
      title: `Where does ${group} begin anew in ${topic}?`,
      words: [field("Begin with", where), field("Instant", at, "In this browser's time zone.")],
      action: "Count first",
    });
    if (!isChosen) return;
    const isTime = where.value === "time";
    const asked = {
      group,
      topic,
      ...(isTime ? { to_ms: new Date(at.value).getTime() || 0 } : { to: where.value }),
    };
    try {
      const counted = await post("count-reset", asked);
      const isSure = await confirm({
        title: `Let ${group} begin anew in ${topic}?`,
        words: [
          h("p", null, `It gets ${count(counted.again_count, "message")} again.`),
          h("p", null, `It does not get ${number(counted.skipped_count)} that it has to do.`),
          h(
            "p",
            null,
            `Its retries are dropped: ${number(counted.retries_dropped_count)} that are due, `,
            "and all that are not.",
          ),
          h("p", null, `Then it has ${count(counted.unresolved_count, "message")} to do.`),
        ],
        action: "Begin anew",
        typed: group,
      });
      if (!isSure) return;
      const done = await post("reset", asked);
      toast(`${group} has ${count(done.unresolved_count, "message")} of ${topic} to do.`);
    } catch (error) {
      toast(error.message, "bad");
    }
    context.look();
  }

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
          {
            title: "Place",
            cell: (one) =>
              one.topic && !one.topic.startsWith("%")
                ? h(
                    "button",
                    {
                      type: "button",
                      class: "quiet changes",
                      "aria-label": `Let ${group.name} begin anew in ${one.topic}`,
                      onclick: () => beginAnew(group.name, one.topic),
                    },
                    "begin anew",
                  )
                : "",
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
