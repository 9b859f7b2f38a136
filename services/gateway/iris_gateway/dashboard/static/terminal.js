// A line as a terminal would leave it, as the server shows it: terminal.py has the same tables and rules.

const LONGEST = 2000;
const RUNS = 100;
const CONTROLS = /(\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_]?)|\r+)/;
const TURNS = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
const STYLES = /^\x1b\[((?:\d{0,3};){0,15}\d{0,3})m$/;
export const PLAIN = { colour: -1, bold: false };

// The runs of one line, classes and text, and the style in which the next line of its stream begins.
export function runsOf(given, style = PLAIN) {
  const text = given.replace(TURNS, (turn) => `\\u${turn.charCodeAt(0).toString(16).padStart(4, "0")}`);
  if (!text.includes("\x1b") && !text.includes("\r")) return [shortened(text ? [[classesOf(style), text]] : []), style];
  let found = [];
  let back = false;
  text.split(CONTROLS).forEach((part, number) => {
    const codes = number % 2 ? STYLES.exec(part) : null;
    if (codes) style = changed(style, codes[1]);
    else if (number % 2) back ||= part.startsWith("\r");
    else if (part) {
      if (back) found = [];
      append(found, classesOf(style), part);
      back = false;
    }
  });
  return [shortened(found), style];
}

function classesOf({ colour, bold }) {
  return [colour >= 0 ? `sgr-${colour}` : "", bold ? "sgr-bold" : ""].filter(Boolean).join(" ");
}

function append(found, classes, text) {
  const last = found.at(-1);
  if (last && (last[0] === classes || found.length === RUNS)) last[1] += text;
  else found.push([classes, text]);
}

function shortened(found) {
  const cut = found.reduce((sum, [, text]) => sum + text.length, 0) - LONGEST;
  if (cut <= 0) return found;
  const kept = [];
  let left = LONGEST;
  for (const [classes, text] of found) {
    kept.push([classes, text.slice(0, left)]);
    left -= text.length;
    if (left < 0) break;
  }
  return [...kept, ["", `… (${cut.toLocaleString("en")} more)`]];
}

function changed(style, codes) {
  const numbers = codes.split(";").map(Number);
  while (numbers.length) {
    const code = numbers.shift();
    if (code === 38) style = { ...style, colour: extended(numbers) };
    else if (code === 48) extended(numbers);
    else if (code === 0) style = PLAIN;
    else if (code === 1 || code === 22) style = { ...style, bold: code === 1 };
    else if (code === 39) style = { ...style, colour: -1 };
    else if ((code >= 30 && code < 38) || (code >= 90 && code < 98)) style = { ...style, colour: (code - 30) % 60 };
  }
  return style;
}

function extended(numbers) {
  const next = () => numbers.shift() ?? 0;
  if (next() === 2) return nearest(next(), next(), next());
  const n = next();
  if (n < 16) return n % 8;
  if (n >= 232) return nearest(10 * (n - 232) + 8, 10 * (n - 232) + 8, 10 * (n - 232) + 8);
  return nearest(51 * Math.floor((n - 16) / 36), 51 * (Math.floor((n - 16) / 6) % 6), 51 * ((n - 16) % 6));
}

function nearest(...parts) {
  const [least, most] = [Math.min(...parts), Math.max(...parts)];
  if (most - least < 48) return most > 127 ? 7 : 0;
  return parts.reduce((sum, part, place) => sum + (2 * part > least + most ? 1 << place : 0), 0);
}
