// The way to the node's console.

let token = null;

/** What the console answered when it was not what was asked for. */
export class Refused extends Error {
  constructor(message, reason, status) {
    super(message);
    this.reason = reason;
    this.status = status;
  }
}

/** How long to wait until the next look, as the console said last. */
export let pollMs = 2_000;

async function ask(path, options) {
  let answer;
  try {
    answer = await fetch(path, { cache: "no-store", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused("The node behind this console does not answer.", "UNREACHABLE", 0);
  }
  let told = {};
  try {
    told = await answer.json();
  } catch {
    // No JSON: the port was too busy to look at it.
  }
  if (told.poll_ms) pollMs = told.poll_ms;
  if (!answer.ok) {
    const { message, reason } = told.error ?? {};
    throw new Refused(
      message ?? "The console is busy. It will be tried again.",
      reason ?? "BUSY",
      answer.status,
    );
  }
  return told;
}

/** Ask: get("wheel", {from_ms: 5}). */
export function get(name, question = {}, signal = undefined) {
  const query = new URLSearchParams(question).toString();
  return ask(`/api/${name}${query ? `?${query}` : ""}`, { signal });
}

/** Change something. */
export async function post(name, body) {
  for (let again = false; ; again = true) {
    token ??= (await get("session")).token;
    try {
      return await ask(`/api/${name}`, {
        method: "POST",
        headers: { "Content-Type": "application/json", "X-Hourwheel-Token": token },
        body: JSON.stringify(body),
      });
    } catch (error) {
      token = null;
      if (error.reason !== "STALE_TOKEN" || again) throw error;
    }
  }
}
