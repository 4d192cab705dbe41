// Questions before something happens, and words after it did.

import { h, newId } from "./dom.js";

/** A short message that goes away by itself. */
export function toast(words, level = "ok") {
  const box = h("div", { class: "toast", "data-level": level }, words);
  document.getElementById("toasts").append(box);
  setTimeout(() => box.remove(), 8_000);
}

/**
 * Ask before something is done: true or false. Where `typed` is given, it has to be typed first.
 */
export function confirm({ title, words, action, typed = "" }) {
  const titleId = newId("dialog");
  const input = typed
    ? h("input", { type: "text", autocomplete: "off", spellcheck: "false", id: newId("typed") })
    : null;
  const yes = h("button", { type: "submit", class: "danger", value: "yes" }, action);
  const no = h("button", { type: "button" }, "Leave it");
  const form = h(
    "form",
    { method: "dialog" },
    h("h2", { id: titleId }, title),
    h("div", { class: "words" }, words),
    input
      ? h(
          "div",
          { class: "field" },
          h("label", { for: input.id }, "Type ", h("code", null, typed), " to go on"),
          input,
        )
      : null,
    h("div", { class: "actions" }, no, yes),
  );
  const dialog = h("dialog", { "aria-labelledby": titleId }, form);
  document.body.append(dialog);
  if (input) {
    yes.disabled = true;
    input.addEventListener("input", () => {
      yes.disabled = input.value.trim() !== typed;
    });
  }
  return new Promise((resolve) => {
    no.addEventListener("click", () => dialog.close("no"));
    form.addEventListener("submit", (event) => {
      event.preventDefault(); // the policy of the page lets no form be sent
      dialog.close("yes");
    });
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes");
    });
    dialog.showModal();
    (input ?? no).focus();
  });
}
