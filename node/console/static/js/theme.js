// Light or dark: as the system has it, until somebody chooses.

const MODES = ["system", "light", "dark"];
const LOOK = { system: "◐", light: "☀", dark: "☾" };
const KEY = "hourwheel-colors";

function stored() {
  try {
    const mode = localStorage.getItem(KEY);
    return MODES.includes(mode) ? mode : "system";
  } catch {
    return "system"; // storage is switched off
  }
}

function show(mode) {
  const root = document.documentElement;
  if (mode === "system") root.removeAttribute("data-theme");
  else root.dataset.theme = mode;
  const button = document.getElementById("theme");
  button.textContent = LOOK[mode];
  const words = mode === "system" ? "as the system" : mode;
  button.setAttribute("aria-label", `Colors: ${words}`);
  button.title = `Colors: ${words}`;
}

let current = stored();
show(current);
document.getElementById("theme").addEventListener("click", () => {
  current = MODES[(MODES.indexOf(current) + 1) % MODES.length];
  show(current);
  try {
    localStorage.setItem(KEY, current);
  } catch {
    // It lasts as long as the page, then.
  }
});
