// Lists by name that may be long: searched, and shown page by page.

import { get } from "../client.js";
import { field, h, loading, put } from "../dom.js";
import { number } from "../format.js";

/**
 * A page with one list: `name` of the call and of the list in its answer, `show(found)` makes
 * what stands below the search.
 */
export function listing({ root, signal, look, question }, { name, title, lead, show, tools }) {
  let search = question.search ?? "";
  let pages = [""];
  const box = h("div", null, loading());
  const words = h("p", { class: "lead" }, lead);
  const input = h("input", { type: "search", autocomplete: "off", spellcheck: "false" });
  input.value = search;
  const back = h("button", { type: "button" }, "Previous");
  const on = h("button", { type: "button" }, "Next");
  const pager = h("div", { class: "pager" }, back, on);
  let more = "";
  let shown = "";

  input.addEventListener("input", () => {
    search = input.value.trim();
    pages = [""];
    look();
  });
  back.addEventListener("click", () => {
    pages.pop();
    look();
  });
  on.addEventListener("click", () => {
    pages.push(more);
    look();
  });

  put(
    root,
    h("div", { class: "page-head" }, h("h1", null, title), words),
    h("div", { class: "tools" }, field("Search by name", input), tools ?? null),
    box,
    pager,
  );

  async function refresh() {
    const found = await get(name, { search, after: pages.at(-1) }, signal);
    // What is the same stays, with what has the focus in it.
    const told = JSON.stringify([search, found]);
    if (told === shown) return;
    shown = told;
    more = found.more_after;
    put(words, `${number(found.total)} in all. ${lead}`);
    put(box, show(found, search));
    back.disabled = pages.length < 2;
    on.disabled = !more;
    pager.hidden = pages.length < 2 && !more;
  }

  return { refresh };
}
