// Single messages and many: find one by its id, see what is scheduled, publish, cancel.

import { confirm, toast } from "../ask.js";
import { get, post } from "../client.js";
import { empty, failure, field, h, loading, put, table } from "../dom.js";
import { sendable, text, words } from "../form.js";
import { bytes, count, instant, number, relative } from "../format.js";

const LOOK_MS = 400;
const UNITS = [
  ["Seconds", 1_000],
  ["Minutes", 60_000],
  ["Hours", 3_600_000],
  ["Days", 86_400_000],
];
const STATES = {
  PENDING: ["Scheduled", "none"],
  RELEASED: ["Released", "ok"],
  CANCELLED: ["Cancelled", "warn"],
  UNKNOWN: ["Not known", "bad"],
};

const chip = (value) => h("code", { class: "chip" }, value);

function chips(title, values) {
  return values.length
    ? [h("dt", null, title), h("dd", null, values.map(chip))]
    : null;
}

export function messagesPage({ root, state, words: place, question, signal }) {
  // --- one message --------------------------------------------------------------------------

  const id = text({ placeholder: "48 hexadecimal digits", maxlength: "60", required: true });
  id.value = place[0] ?? "";
  const life = h("div", { class: "life", "aria-live": "polite" });
  const search = sendable(
    h(
      "form",
      { class: "inline", role: "search" },
      field("Message id", id),
      h("button", { type: "submit", class: "primary" }, "Find"),
    ),
    async () => {
      const wanted = `#/messages/${encodeURIComponent(id.value.trim())}`;
      if (location.hash === wanted) await showLife();
      else location.hash = wanted;
    },
  );

  async function cancelOne(messageId) {
    const isSure = await confirm({
      title: "Cancel this message?",
      words: h("p", null, "It will never be delivered. This cannot be undone."),
      action: "Cancel the message",
    });
    if (!isSure) return;
    try {
      const { outcome } = await post("cancel", { message_id: messageId });
      if (outcome === "CANCELLED") toast("The message is cancelled.");
      else toast("Too late: it was released before.", "warn");
    } catch (error) {
      toast(error.message, "bad");
    }
    await showLife();
  }

  function step(title, level, ...about) {
    return h("li", { "data-level": level }, h("h4", null, title), h("p", null, about));
  }

  function lifeOf(found) {
    const { pending } = found;
    const isKnown = found.state !== "UNKNOWN";
    const steps = [];
    if (isKnown) {
      steps.push(
        step(
          "Accepted",
          "ok",
          pending ? `${instant(pending.store_ms)}, in` : "In",
          ` epoch ${found.epoch}, as number ${number(found.sequence)}.`,
        ),
      );
    }
    if (found.state === "PENDING") {
      const due = `${instant(found.due_ms)}, ${relative(found.due_ms, found.now_ms)}.`;
      steps.push(step("Scheduled", "now", due));
    } else if (found.state === "RELEASED") {
      steps.push(step("Due", "ok", `${instant(found.due_ms)}.`));
      steps.push(step("Released", "ok", "Groups that receive from its topic get it."));
    } else if (found.state === "CANCELLED") {
      const due = `It would have been due at ${instant(found.due_ms)}.`;
      steps.push(step("Cancelled", "warn", due));
    }
    if (found.is_damaged) {
      steps.push(step("Unreadable", "bad", "The master has no good copy of it so far."));
    }
    for (const one of found.dead_letters) {
      steps.push(
        step(
          `Dead letter of ${one.group}`,
          "bad",
          `After ${count(one.attempts, "delivery", "deliveries")}`,
          one.topic ? [" from ", h("code", null, one.topic)] : null,
          one.reason === "ATTEMPTS_USED_UP" ? ", which used its attempts up." : ".",
        ),
      );
    }
    if (found.state === "RELEASED" && !found.dead_letters_complete) {
      steps.push(step("Dead letters", "none", "Only the newest were looked through."));
    }
    const [title, level] = STATES[found.state] ?? [found.state, "none"];
    return h(
      "article",
      { class: "card" },
      h(
        "header",
        null,
        h("h3", null, title),
        h("span", { class: "badge", "data-level": level }, found.state.toLowerCase()),
      ),
      isKnown
        ? h("ol", { class: "steps" }, steps)
        : h("p", null, "No message has this id, or its history is past retention."),
      pending
        ? [
            h(
              "dl",
              { class: "rows" },
              h("dt", null, "Topic"),
              h("dd", null, pending.topic),
              chips("Tags", pending.tags),
              chips("Keys", pending.keys),
              chips("Properties", pending.properties.map(([name, value]) => `${name} = ${value}`)),
              h("dt", null, "Body"),
              h(
                "dd",
                null,
                bytes(pending.body_bytes),
                pending.body_is_cut ? ", its beginning" : "",
              ),
            ),
            pending.body === null
              ? null
              : h("pre", { class: "body", tabindex: "0", "aria-label": "Body" }, pending.body),
          ]
        : null,
      found.state === "PENDING"
        ? h(
            "button",
            {
              type: "button",
              class: "danger changes",
              onclick: () => cancelOne(found.message_id),
            },
            "Cancel the message",
          )
        : null,
    );
  }

  async function showLife() {
    const wanted = id.value.trim();
    if (!wanted) {
      put(life);
      return;
    }
    if (!life.childElementCount) put(life, loading("Looking for it"));
    try {
      put(life, lifeOf(await get("message", { id: wanted }, signal)));
    } catch (error) {
      if (error.name !== "AbortError") put(life, failure(error));
    }
  }

  // --- publish ------------------------------------------------------------------------------

  const to = text({ required: true, maxlength: "127" });
  const body = h("textarea", { rows: "3", spellcheck: "false" });
  const amount = h("input", { type: "number", min: "0", max: "9999", required: true });
  const unit = h("select", null, UNITS.map(([name, ms]) => h("option", { value: ms }, name)));
  const tags = text();
  const keys = text();
  const published = h("div", { "aria-live": "polite" });
  amount.value = "5";
  unit.value = "60000";
  body.value = "A test message";
  const publish = sendable(
    h(
      "form",
      { class: "form" },
      field("Topic", to, "Publishing to a new name makes the topic, if the node is set up so."),
      field("Body", body),
      h("div", { class: "pair" }, field("Due in", amount), field("Unit", unit)),
      h(
        "div",
        { class: "pair" },
        field("Tags", tags, "With commas between."),
        field("Keys", keys, "With commas between."),
      ),
      h("button", { type: "submit", class: "primary changes" }, "Publish"),
      published,
    ),
    async () => {
      const { message_id: messageId } = await post("publish", {
        topic: to.value.trim(),
        body: body.value,
        delay_ms: Math.round(Number(amount.value) * Number(unit.value)),
        tags: words(tags.value),
        keys: words(keys.value),
      });
      put(
        published,
        h("p", { class: "done" }, "Published: "),
        h("a", { href: `#/messages/${messageId}` }, h("code", null, messageId)),
      );
    },
  );

  // --- many ---------------------------------------------------------------------------------

  const topic = text({ required: true, maxlength: "127" });
  const filter = text({ placeholder: "every message" });
  const kind = h(
    "select",
    null,
    h("option", { value: "tags" }, "Tags: unpaid && !test"),
    h("option", { value: "sql" }, "Properties: amount >= 200"),
  );
  const from = h("input", { type: "datetime-local", step: "1" });
  const until = h("input", { type: "datetime-local", step: "1" });
  const many = h("div", { class: "many", "aria-live": "polite" });
  const queryNow = () => ({
    topic: topic.value.trim(),
    filter: filter.value.trim(),
    filter_kind: kind.value,
    from_ms: from.value ? new Date(from.value).getTime() : 0,
    to_ms: until.value ? new Date(until.value).getTime() : 0,
  });

  /** Wait for the end of work that the node does, telling how it goes. */
  async function follow(begun, tell) {
    let now = begun;
    while (now.state === "running") {
      tell(now);
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
      signal.throwIfAborted();
      now = await get("operation", { number: begun.number }, signal);
    }
    if (now.state !== "done") throw new Error(now.error || "It was stopped before its end.");
    return now;
  }

  async function cancelMany(query, counted) {
    const matched = counted.result.matched_count;
    const isSure = await confirm({
      title: `Cancel ${count(matched, "message")}?`,
      words: [
        h("p", null, "All that match will never be delivered. This cannot be undone."),
        h("p", null, "Topic ", h("code", null, query.topic)),
        h("p", null, "Filter ", h("code", null, query.filter || "*")),
        h("p", null, "What is published from now on stays."),
      ],
      action: "Cancel them",
      typed: String(matched),
    });
    if (!isSure) return;
    try {
      const begun = await post("cancel-counted", { number: counted.number });
      const done = await follow(begun, (now) => {
        const soFar = number(now.result.cancelled_count ?? 0);
        const stop = () => post("stop", { number: begun.number }).catch(() => {});
        put(
          many,
          loading(`${soFar} cancelled so far`),
          h("button", { type: "button", onclick: stop }, "Stop"),
        );
      });
      const { cancelled_count: gone, already_released_count: late } = done.result;
      put(
        many,
        h("p", { class: "done" }, `${count(gone, "message")} cancelled`),
        late ? h("p", null, `${count(late, "message")} had been released before.`) : null,
      );
    } catch (error) {
      if (error.name !== "AbortError") put(many, failure(error));
    }
  }

  function firstOf(found) {
    if (!found.messages.length) return null;
    return [
      h("h3", null, found.has_more ? `The first ${found.messages.length}` : "All of them"),
      table(
        "Scheduled messages",
        [
          { title: "Due", cell: (one) => instant(one.due_ms) },
          {
            title: "Message",
            cell: (one) =>
              h("a", { href: `#/messages/${one.message_id}`, class: "id" }, one.message_id),
          },
          { title: "Tags", cell: (one) => one.tags.map(chip) },
          { title: "Keys", cell: (one) => one.keys.map(chip) },
          { title: "Body", number: true, cell: (one) => bytes(one.body_bytes) },
        ],
        found.messages,
      ),
    ];
  }

  async function countMany() {
    const query = queryNow();
    put(many, loading("Counting"));
    try {
      // Counting changes nothing, but is begun as a change is: it is work for the node.
      const counted = await follow(await post("count", query), () => {});
      const listed = await get("pending", query, signal);
      const { matched_count: matched, corrupt_count: corrupt } = counted.result;
      put(
        many,
        matched
          ? [
              h(
                "div",
                { class: "counted" },
                h("p", null, h("b", null, number(matched)), matched === 1 ? " matches" : " match"),
                h(
                  "button",
                  {
                    type: "button",
                    class: "danger changes",
                    onclick: () => cancelMany(query, counted),
                  },
                  `Cancel ${matched === 1 ? "it" : "all of them"}`,
                ),
              ),
              firstOf(listed),
            ]
          : empty("Nothing matches", "No scheduled message of this topic matches the filter."),
        corrupt
          ? h("p", { class: "note" }, `${count(corrupt, "message")} cannot be read: left out.`)
          : null,
      );
    } catch (error) {
      put(many);
      throw error;
    }
  }

  const bulk = sendable(
    h(
      "form",
      { class: "form" },
      field("Topic", topic),
      h("div", { class: "pair" }, field("Filter", filter), field("Filter by", kind)),
      h("div", { class: "pair" }, field("Due from", from), field("Due before", until)),
      h("button", { type: "submit", class: "primary" }, "Count"),
    ),
    countMany,
  );
  topic.value = to.value = question.topic ?? "";

  put(
    root,
    h(
      "div",
      { class: "page-head" },
      h("h1", null, "Messages"),
      h("p", { class: "lead" }, "Follow one through its life, or deal with many at once."),
    ),
    h("section", { class: "card", "aria-label": "Find a message" }, search, life),
    h(
      "div",
      { class: "halves" },
      h("section", { class: "card" }, h("h2", null, "Scheduled"), bulk, many),
      h("section", { class: "card" }, h("h2", null, "Publish a test message"), publish),
    ),
  );
  if (id.value) showLife();
  else if (question.topic) bulk.requestSubmit();

  function refresh() {
    const isLocked = Boolean(state.readOnly || state.lost);
    for (const button of root.querySelectorAll("button.changes")) {
      if (isLocked || button.hasAttribute("data-locked")) button.disabled = isLocked;
      button.toggleAttribute("data-locked", isLocked);
      button.title = state.readOnly || "";
    }
  }

  return { refresh };
}
