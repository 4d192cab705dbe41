// Numbers, sizes and times as people read them.

const NUMBER = new Intl.NumberFormat("en-US");
const SHORT = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 });
const BYTES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const SPANS = [
  [365 * 86_400_000, "y"],
  [86_400_000, "d"],
  [3_600_000, "h"],
  [60_000, "min"],
  [1_000, "s"],
];

export const number = (value) => NUMBER.format(value);
export const short = (value) => (value < 10_000 ? NUMBER.format(value) : SHORT.format(value));

/** A rate a second. */
export function rate(value) {
  return value > 0 && value < 10 ? value.toFixed(1) : short(Math.round(value));
}

export function bytes(value) {
  let unit = 0;
  let left = value;
  while (left >= 1024 && unit < BYTES.length - 1) {
    left /= 1024;
    unit += 1;
  }
  return `${left < 10 && unit ? left.toFixed(1) : Math.round(left)} ${BYTES[unit]}`;
}

export function count(value, one, many = `${one}s`) {
  return `${number(value)} ${value === 1 ? one : many}`;
}

/** A length of time in its two largest units: "2 h 5 min". */
export function span(ms) {
  let left = Math.max(0, Math.round(ms / 1_000) * 1_000);
  if (left < 1_000) return ms > 0 && ms < 500 ? `${Math.round(ms)} ms` : "0 s";
  const words = [];
  for (const [size, name] of SPANS) {
    const whole = Math.floor(left / size);
    if (whole) words.push(`${whole} ${name}`);
    else if (words.length) break;
    left -= whole * size;
    if (words.length === 2) break;
  }
  return words.join(" ");
}

/** Milliseconds of lateness: "1.5 ms", "250 ms", "3 s". */
export function lateness(ms) {
  if (ms < 10) return `${Number(ms.toFixed(1))} ms`;
  return ms < 1_000 ? `${Math.round(ms)} ms` : span(ms);
}

export function clock(ms) {
  return new Date(ms).toLocaleTimeString("en-GB");
}

export function date(ms) {
  const at = new Date(ms);
  const two = (value) => String(value).padStart(2, "0");
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
}

export function instant(ms) {
  return `${date(ms)} ${clock(ms)}`;
}

/** "in 5 min", "5 min ago", "now". */
export function relative(ms, nowMs) {
  const away = ms - nowMs;
  if (Math.abs(away) < 1_000) return "now";
  return away > 0 ? `in ${span(away)}` : `${span(-away)} ago`;
}
