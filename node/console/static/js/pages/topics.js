// Topics, and what was released into each.

import { empty, h, table } from "../dom.js";
import { number } from "../format.js";
import { listing } from "./listing.js";

export function topicsPage(context) {
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
