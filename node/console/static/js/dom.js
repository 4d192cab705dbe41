// Elements. Text only ever becomes a text node: whatever a topic or a body contains is shown, and
// never read as HTML. The Content-Security-Policy forbids the browser to do otherwise, too.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else if (name === "vars") {
      for (const [key, one] of Object.entries(value)) element.style.setProperty(key, one);
    } else element.setAttribute(name, value === true ? "" : String(value));
  }
  add(element, children);
  return element;
}

function add(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
}

/** An HTML element: h("p", {class: "note"}, "text", other). `on...` are listeners. */
export function h(tag, props, ...children) {
  return fill(document.createElement(tag), props, children);
}

/** The same of SVG. */
export function s(tag, props, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

/** Replace what is in an element. */
export function put(element, ...children) {
  element.replaceChildren();
  add(element, children);
  return element;
}

let lastId = 0;

/** An id that nothing else on the page has. */
export function newId(what) {
  lastId += 1;
  return `${what}-${lastId}`;
}

/** A labelled field of a form. */
export function field(label, input, note) {
  input.id ||= newId("field");
  const noteId = note ? newId("note") : null;
  if (noteId) input.setAttribute("aria-describedby", noteId);
  return h(
    "div",
    { class: "field" },
    h("label", { for: input.id }, label),
    input,
    note ? h("p", { class: "note", id: noteId }, note) : null,
  );
}

/** A table. `columns`: [{title, cell(row), number?}]; the first column names its row. */
export function table(caption, columns, rows, props = {}) {
  const head = columns.map((one) =>
    h("th", { scope: "col", class: one.number ? "number" : null }, one.title),
  );
  const body = rows.map((row) =>
    h(
      "tr",
      null,
      columns.map((one, at) =>
        h(
          at === 0 ? "th" : "td",
          {
            scope: at === 0 ? "row" : null,
            class: one.number ? "number" : null,
            "data-title": one.title,
          },
          one.cell(row),
        ),
      ),
    ),
  );
  return h(
    "div",
    { class: "table-box", role: "region", "aria-label": caption, tabindex: "0" },
    h(
      "table",
      props,
      h("caption", { class: "unseen" }, caption),
      h("thead", null, h("tr", null, head)),
      h("tbody", null, body),
    ),
  );
}

/** What stands where there is nothing to show. */
export function empty(title, ...words) {
  return h("div", { class: "empty" }, h("h3", null, title), h("p", null, words));
}

/** What stands where something is on its way. */
export function loading(words = "Loading") {
  return h("div", { class: "loading", role: "status" }, h("span", { class: "dots" }), words);
}

/** What stands where something failed. */
export function failure(error, again) {
  return h(
    "div",
    { class: "failure", role: "alert" },
    h("h3", null, "That did not work"),
    h("p", null, error.message),
    again ? h("button", { type: "button", onclick: again }, "Try again") : null,
  );
}
