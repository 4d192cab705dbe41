// Topics, what was released into each, and how long that stays.

import { confirm, toast } from "../ask.js";
import { post } from "../client.js";
import { empty, field, h, table } from "../dom.js";
import { text } from "../form.js";
import { number, span } from "../format.js";
import { listing } from "./listing.js";

const DAY_MS = 86_400_000;

export function topicsPage(context) {
  async function keepFor(topic) {
    const days = text({ type: "number", min: "0", max: "3650", step: "any" });
    days.value = topic.retention_ms / DAY_MS;
    const isSure = await confirm({
      title: `How long does ${topic.name} keep what was released?`,
      words: [
        field("Days", days, "0: as long as the nodes are set up to."),
        h("p", null, "What is older goes, also what a group has not received yet."),
      ],
      action: "Keep it so long",
    });
    if (!isSure) return;
    try {
      const { retention_ms: ms } = await post("retention", {
        topic: topic.name,
        retention_ms: Math.round(Number(days.value) * DAY_MS),
        expected_version: topic.version,
      });
      toast(`${topic.name} keeps what was released for ${kept(ms)}.`);
    } catch (error) {
      toast(error.message, "bad");
    }
    context.look();
  }

  const kept = (ms) => (ms ? span(ms) : "the nodes' default");

  return listing(context, {
    name: "topics",
    title: "Topics",
    lead: "Messages are published to a topic, and groups receive from it.",
    show: ({ topics }, search) =>
      topics.length
        ? table(
            "Topics",
            [
              {
                title: "Topic",
                cell: (one) => {
                  const question = new URLSearchParams({ topic: one.name });
                  return h("a", { href: `#/messages?${question}`, class: "name" }, one.name);
                },
              },
              { title: "Queues", number: true, cell: (one) => number(one.queues) },
              { title: "Released", number: true, cell: (one) => number(one.released) },
              {
                title: "Kept for",
                cell: (one) =>
                  h(
                    "button",
                    {
                      type: "button",
                      class: "quiet changes",
                      "aria-label": `${one.name} is kept for ${kept(one.retention_ms)}: change it`,
                      onclick: () => keepFor(one),
                    },
                    kept(one.retention_ms),
                  ),
              },
            ],
            topics,
          )
        : search
          ? empty("No topic is called so", `Nothing has "${search}" in its name.`)
          : empty(
              "No topics yet",
              "The first message that is published makes its topic: ",
              h("a", { href: "#/messages" }, "publish one"),
              ".",
            ),
  });
}
