// Who may do what, and how much: grants, users and quotas.

import { confirm, toast } from "../ask.js";
import { get, post } from "../client.js";
import { empty, field, h, loading, put, table } from "../dom.js";
import { sendable, text } from "../form.js";
import { number } from "../format.js";

const OPERATIONS = ["publish", "receive", "cancel", "look", "administer"];
const KINDS = ["topic", "group", "cluster"];
const LIMITS = {
  messages_per_s: "messages a second",
  bytes_per_s: "bytes a second",
  pending_messages: "pending messages",
  topics: "topics",
  groups: "groups",
  connections: "connections to a node",
  calls_in_flight: "calls at a time",
};

const over = (one) => (one.kind === "cluster" ? "the cluster" : `${one.kind} ${one.resource}`);

export function accessPage({ root, signal, look, question }) {
  const search = text({ type: "search" });
  search.value = question.search ?? "";
  search.addEventListener("input", look);
  const box = h("div", null, loading());
  let known = { grants: [] };
  let shown = "";

  // --- a grant ------------------------------------------------------------------------------

  const principal = text({ required: true, maxlength: "256" });
  const kind = h("select", null, KINDS.map((one) => h("option", { value: one }, one)));
  const resource = text({ required: true, maxlength: "128" });
  const checks = OPERATIONS.map((one) => h("input", { type: "checkbox", value: one }));
  kind.addEventListener("change", () => {
    resource.disabled = kind.value === "cluster";
    if (resource.disabled) resource.value = "";
  });
  const give = sendable(
    h(
      "form",
      { class: "form" },
      field("Who", principal, "A name, or its beginning with a * behind it."),
      h(
        "div",
        { class: "pair" },
        field("On which kind", kind),
        field("Name", resource, "A name, or its beginning with a * behind it."),
      ),
      h(
        "fieldset",
        { class: "checks" },
        h("legend", null, "May"),
        checks.map((one) => h("label", null, one, one.value)),
      ),
      h("button", { type: "submit", class: "primary changes" }, "Grant"),
    ),
    async () => {
      const wanted = {
        principal: principal.value.trim(),
        kind: kind.value,
        resource: resource.value.trim(),
        operations: checks.filter((one) => one.checked).map((one) => one.value),
      };
      const same = known.grants?.find((one) =>
        ["principal", "kind", "resource"].every((name) => one[name] === wanted[name]),
      );
      if (same && !(await isSureToReplace(same, wanted))) return;
      await post("grant", { ...wanted, expected_version: same?.version ?? 0 });
      toast(`${wanted.principal} may ${wanted.operations.join(", ")}: ${over(wanted)}.`);
      look();
    },
  );

  const isSureToReplace = (old, wanted) =>
    confirm({
      title: `Replace what ${old.principal} may?`,
      words: [
        h("p", null, `On ${over(old)} it may ${old.operations.join(", ")} now.`),
        h("p", null, `From then on it may just ${wanted.operations.join(", ")}.`),
      ],
      action: "Replace it",
    });

  async function revoke(one) {
    const isSure = await confirm({
      title: `Revoke what ${one.principal} may?`,
      words: h("p", null, `On ${over(one)}: ${one.operations.join(", ")}. Open streams end, too.`),
      action: "Revoke",
    });
    if (!isSure) return;
    try {
      const { principal: who, kind: of, resource: name, version } = one;
      await post("revoke", { principal: who, kind: of, resource: name, expected_version: version });
      toast(`Revoked: ${who} on ${over(one)}.`);
    } catch (error) {
      toast(error.message, "bad");
    }
    look();
  }

  // --- what there is ------------------------------------------------------------------------

  const revokable = (one) =>
    h(
      "button",
      {
        type: "button",
        class: "danger changes",
        "aria-label": `Revoke ${one.principal} on ${over(one)}`,
        onclick: () => revoke(one),
      },
      "Revoke",
    );

  function grants(found) {
    if (!found.grants.length) {
      return empty("No grants", "Where access control is on, only administrators may do anything.");
    }
    return table(
      "Grants",
      [
        { title: "Who", cell: (one) => h("span", { class: "name" }, one.principal) },
        { title: "On", cell: over },
        { title: "May", cell: (one) => one.operations.join(", ") },
        { title: "", cell: revokable },
      ],
      found.grants,
    );
  }

  function users(found) {
    return found.users.length
      ? table(
          "Users",
          [{ title: "User", cell: (one) => h("span", { class: "name" }, one.name) }],
          found.users,
        )
      : empty("No users", "A user is made by ", h("code", null, "hourwheel access put-user"), ".");
  }

  function quotas(found) {
    const limits = (one) =>
      Object.entries(LIMITS)
        .filter(([name]) => one.limits[name] !== null)
        .map(([name, words]) => `${number(one.limits[name])} ${words}`)
        .join(", ") || "none";
    return found.quotas.length
      ? table(
          "Quotas",
          [
            { title: "Who", cell: (one) => h("span", { class: "name" }, one.principal) },
            { title: "At most", cell: limits },
          ],
          found.quotas,
        )
      : empty("No quotas", "Everybody may use as much as there is.");
  }

  const all = (title, shown, total) =>
    h("h2", null, shown < total ? `${title}: the first ${shown} of ${number(total)}` : title);

  const form = h(
    "section",
    { class: "card", "aria-label": "Grant" },
    h("h2", null, "Grant"),
    give,
  );
  put(
    root,
    h(
      "div",
      { class: "page-head" },
      h("h1", null, "Access"),
      h("p", { class: "lead" }, "What is allowed to whom, and how much of it."),
    ),
    h("div", { class: "tools" }, field("Search by who", search)),
    box,
    form,
  );

  async function refresh() {
    known = await get("access", { search: search.value.trim() }, signal);
    // What is the same stays, with what has the focus in it.
    const told = JSON.stringify(known);
    if (told === shown) return;
    shown = told;
    form.hidden = !known.grants;
    if (form.hidden) {
      put(box, empty("Not for you", "Who administers the cluster sees what is allowed to whom."));
      return;
    }
    put(
      box,
      all("Grants", known.grants.length, known.grants_total),
      grants(known),
      all("Users", known.users.length, known.users_total),
      users(known),
      all("Quotas", known.quotas.length, known.quotas_total),
      quotas(known),
    );
  }

  return { refresh };
}
