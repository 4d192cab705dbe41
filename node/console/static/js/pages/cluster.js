// Who is there, who is master, and how fast messages go through.

import { confirm, toast } from "../ask.js";
import { chart } from "../chart.js";
import { post } from "../client.js";
import { h, put } from "../dom.js";
import { bytes, lateness, number, rate, relative, short } from "../format.js";

const WINDOW_MS = 300_000;
const RATES = [
  ["published", "Accepted", "a"],
  ["released", "Released", "b"],
  ["acknowledged", "Acknowledged", "c"],
];

/** Rates a second between points; null where the counts began anew. */
function ratesOf(history, name) {
  return history.slice(1).map((point, at) => {
    const before = history[at];
    const seconds = (point.at_ms - before.at_ms) / 1_000;
    const isOne = point.master === before.master && point[name] >= before[name];
    return { at_ms: point.at_ms, value: isOne ? (point[name] - before[name]) / seconds : null };
  });
}

/** The bound below which a share of what was released between two points was late. */
function quantile(before, point, bounds, part) {
  if (point.master !== before.master || !point.late.length) return null;
  const counts = point.late.map((count, at) => count - (before.late[at] ?? 0));
  const all = counts.reduce((sum, one) => sum + one, 0);
  if (all <= 0 || counts.some((one) => one < 0)) return null;
  let seen = 0;
  for (let at = 0; at < counts.length; at += 1) {
    seen += counts[at];
    if (seen >= part * all) return bounds[at] ?? bounds.at(-1);
  }
  return bounds.at(-1);
}

function lateOf(history, bounds, part) {
  return history.slice(1).map((point, at) => ({
    at_ms: point.at_ms,
    value: quantile(history[at], point, bounds, part),
  }));
}

function figure(title, value, note) {
  return h(
    "div",
    { class: "figure" },
    h("dt", null, title),
    h("dd", null, value, note ? h("small", null, note) : null),
  );
}

function badge(words, level) {
  return h("span", { class: "badge", "data-level": level }, words);
}

export function clusterPage({ root, state, look }) {
  const head = h("div", { class: "page-head" });
  const problems = h("ul", { class: "problems" });
  const figures = h("dl", { class: "figures" });
  const cards = h("div", { class: "cards" });
  const facts = h("dl", { class: "facts" });
  const throughput = chart("Messages a second", rate);
  const late = chart("Lateness", lateness, "Nothing was released in this time.");

  put(
    root,
    head,
    problems,
    figures,
    h("div", { class: "charts" }, throughput.element, late.element),
    h("h2", null, "Nodes"),
    cards,
    h("h2", null, "Log"),
    facts,
  );

  async function transfer(node) {
    const { cluster } = state;
    const isSure = await confirm({
      title: `Make ${node.node_id} the master?`,
      words: [
        h("p", null, `${cluster.master} hands over to ${node.node_id}.`),
        h("p", null, "Leases go over with it; publishing and delivery pause for a moment."),
      ],
      action: "Hand over",
    });
    if (!isSure) return;
    try {
      const body = { to: node.node_id, epoch: cluster.shard.epoch };
      const { master, epoch } = await post("transfer", body);
      toast(`${master} is master now, in epoch ${epoch}.`);
    } catch (error) {
      toast(error.message, "bad");
    }
    look();
  }

  function card(node) {
    const { cluster, readOnly } = state;
    const level = !node.answers ? "bad" : node.is_master || node.is_in_sync ? "ok" : "warn";
    const canLead = cluster.master && !node.is_master && node.answers && node.is_in_sync;
    const rows = [
      ["Address", h("code", null, node.address)],
      ["Version", node.version || cluster.version],
      ["Started", node.started_ms ? relative(node.started_ms, cluster.now_ms) : "-"],
      [
        "Log",
        node.is_master || node.lag_bytes === null
          ? `ends at ${number(node.log_end_offset || cluster.shard?.log_end_offset || 0)}`
          : node.lag_bytes
            ? `${bytes(node.lag_bytes)} behind`
            : "complete",
      ],
      [
        "Clock",
        node.clock_offset_ms === null ? "-" : `${node.clock_offset_ms.toFixed(1)} ms off`,
      ],
    ];
    return h(
      "section",
      { class: "card node", "data-level": level, "aria-label": node.node_id },
      h(
        "header",
        null,
        h("span", { class: "dot", "data-level": level, "aria-hidden": "true" }),
        h("h3", null, node.node_id),
        node.is_master ? badge("Master", "master") : null,
        node.node_id === cluster.node_id ? badge("This console", "none") : null,
      ),
      h(
        "p",
        { class: "badges" },
        node.answers ? badge("Answers", "ok") : badge("Does not answer", "bad"),
        node.is_in_sync ? badge("In sync", "ok") : badge("Not in sync", "warn"),
        node.phase && node.phase !== "replicating" ? badge(node.phase, "warn") : null,
        node.read_only_reason ? badge(node.read_only_reason, "bad") : null,
      ),
      h(
        "dl",
        { class: "rows" },
        rows.map(([name, value]) => [h("dt", null, name), h("dd", null, value)]),
      ),
      canLead
        ? h(
            "button",
            {
              type: "button",
              disabled: Boolean(readOnly || state.lost),
              title: readOnly || null,
              onclick: () => transfer(node),
              "aria-label": `Make ${node.node_id} the master`,
            },
            "Make master",
          )
        : null,
    );
  }

  let cardsNow = "";

  function refresh() {
    const { cluster, history } = state;
    const shard = cluster.shard;
    put(
      head,
      h("h1", null, "Cluster"),
      h(
        "p",
        { class: "lead" },
        cluster.master
          ? ["Master ", h("b", null, cluster.master), ` in epoch ${shard.epoch}; `]
          : "No master; ",
        shard ? `${shard.in_sync.length || 1} of ${cluster.nodes.length} in sync` : "nothing known",
        cluster.control?.leader_node_id
          ? `; Raft's leader is ${cluster.control.leader_node_id}, term ${cluster.control.term}`
          : "",
        ".",
      ),
    );
    put(
      problems,
      cluster.problems.map((one) => h("li", { "data-level": one.level }, one.text)),
    );
    problems.hidden = !cluster.problems.length;
    if (shard) {
      const next = shard.next_due_ms ? relative(shard.next_due_ms, cluster.now_ms) : "none";
      put(
        figures,
        figure("Pending", short(shard.pending_count), "messages"),
        figure("Next due", next),
        figure("Released", short(shard.released_count), "in all"),
        figure("Cancelled", short(shard.cancelled_count), "in all"),
        figure("Early", number(shard.delivery?.early_count ?? 0), "must be 0"),
      );
      put(
        facts,
        [
          ["Log from", number(shard.log_start_offset)],
          ["High watermark", number(shard.high_watermark)],
          ["End", number(shard.log_end_offset)],
          ["Applied", number(shard.applied_offset)],
          ["On disk", bytes(shard.disk_bytes)],
          ["Runs of the wheel", number(shard.run_count)],
          ["Cluster", h("code", null, cluster.cluster_id)],
          ["Version", cluster.version],
        ].map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))),
      );
    }
    const toMs = history.at(-1)?.at_ms ?? cluster.now_ms;
    const window = history.filter((one) => one.at_ms >= toMs - WINDOW_MS);
    const fromMs = Math.min(window[0]?.at_ms ?? toMs, toMs - 60_000);
    const bounds = shard?.delivery?.lateness_bounds_ms ?? [];
    throughput.draw(
      RATES.map(([name, words, style]) => ({ name: words, style, points: ratesOf(window, name) })),
      fromMs,
      toMs,
    );
    late.draw(
      [
        { name: "Half within", style: "a", points: lateOf(window, bounds, 0.5) },
        { name: "99 % within", style: "d", points: lateOf(window, bounds, 0.99) },
      ],
      fromMs,
      toMs,
    );
    // Drawn again only when something is different: a button keeps its focus.
    const now = JSON.stringify([cluster.nodes, cluster.master, state.readOnly, state.lost]);
    if (now !== cardsNow) {
      const focused = document.activeElement?.getAttribute("aria-label");
      put(cards, cluster.nodes.map(card));
      cardsNow = now;
      if (focused) {
        [...cards.querySelectorAll("button")]
          .find((one) => one.getAttribute("aria-label") === focused)
          ?.focus();
      }
    }
  }

  return { refresh };
}
