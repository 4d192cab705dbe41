// Forms: fields for text, and what becomes of what is in them.

import { h } from "./dom.js";

const PLAIN = { type: "text", autocomplete: "off", spellcheck: "false" };

/** A field for a line of text. */
export const text = (props) => h("input", { ...PLAIN, ...props });

/** The words between commas. */
export const words = (value) => value.split(",").map((one) => one.trim()).filter(Boolean);

/** Sends a form's content; shows what went wrong beside it. */
export function sendable(form, work) {
  const note = h("p", { class: "form-error", role: "alert" });
  form.append(note);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const button = form.querySelector("button[type=submit]");
    button.disabled = true;
    note.textContent = "";
    try {
      await work();
    } catch (error) {
      note.textContent = error.message;
    }
    button.disabled = false;
  });
  return form;
}
