// The output of a job or task: follows it, finds text in it, and keeps 100,000 lines while the page holds only the rows
// that can be seen. Without this script the page shows the last lines and a file to download.

import { PLAIN, runsOf } from "./terminal.js";

const ROW_PX = 20;
const BESIDE = 40; // rows kept above and below what can be seen
const FIRST = 2000;
const KEPT = 100000;
const SLICE_MS = 8;
const AGAIN_MS = 2000;
const LONGEST_LINE = 1 << 20; // a longer one goes on in another row
const LOOKED_AT = 500; // lines between two looks at the clock

export class Log {
  constructor(box, say) {
    this.box = box;
    this.say = say;
    this.rows = box.querySelector(".lines");
    this.many = "many" in box.dataset;
    this.lines = [];
    this.first = 0; // of the rows in the page
    this.shown = new Map();
    this.seen = new Map();
    this.last = ""; // where a connection that is lost goes on
    this.following = true;
    this.unseen = 0;
    this.hits = [];
    this.hit = -1;
    this.asked = "";
    this.looked = 0; // so many lines have been looked through for what is asked
    this.begun = new Map(); // the row of each stream whose line has not ended
    this.styles = new Map(); // in which the next line of each stream begins
    this.tools();
    box.addEventListener("scroll", () => this.scrolled(), { passive: true });
    document.addEventListener("visibilitychange", () => (document.hidden ? this.stop() : this.start()));
    box.scrollTop = box.scrollHeight;
    if (!document.hidden) this.start();
  }

  tools() {
    const bar = this.box.previousElementSibling;
    bar.innerHTML = `<input type="search" placeholder="Find in output" aria-label="Find in output">
      <button type="button" data-key="N" title="Previous match (N)">↑<span class="sr">Previous match</span></button>
      <button type="button" data-key="n" title="Next match (n)">↓<span class="sr">Next match</span></button>
      <output></output>
      <button type="button" hidden>Load earlier lines</button>
      <button type="button" data-key="." class="newer" title="Stop or go on following (.)">Pause</button>
      <button type="button" data-key="G" title="Jump to the end (G)">End</button>`;
    this.find = bar.querySelector("input");
    this.count = bar.querySelector("output");
    const [previous, next, older, pause, end] = bar.querySelectorAll("button");
    [this.older, this.pause] = [older, pause];
    this.find.addEventListener("input", () => this.search());
    this.find.addEventListener("keydown", (event) => event.key === "Enter" && this.jump(event.shiftKey ? -1 : 1));
    previous.onclick = () => this.jump(-1);
    next.onclick = () => this.jump(1);
    older.onclick = () => this.loadOlder().catch(() => this.say("the earlier lines could not be loaded"));
    pause.onclick = () => this.follow(!this.following);
    end.onclick = () => this.follow(true);
  }

  follow(on) {
    this.following = on;
    if (on) this.toEnd();
    this.tell();
  }

  toEnd() {
    this.unseen = 0;
    this.draw();
    this.box.scrollTop = this.box.scrollHeight;
  }

  // Scrolling up stops following, scrolling down to the end goes on with it.
  scrolled() {
    const atEnd = this.box.scrollTop + this.box.clientHeight >= this.box.scrollHeight - ROW_PX;
    if (atEnd) this.unseen = 0;
    this.following = atEnd;
    this.tell();
    this.soon();
  }

  tell() {
    const newer = this.unseen ? `${this.unseen.toLocaleString("en")} new ↓` : "Follow";
    this.pause.textContent = this.following ? "Pause" : newer;
    this.pause.hidden = this.over === true;
    this.older.hidden = !this.partial;
  }

  async start() {
    if (this.reading || this.over) return;
    const reading = (this.reading = new AbortController());
    while (!reading.signal.aborted && !this.over) {
      try {
        await this.read(reading.signal);
      } catch {
        // the gateway went away, or the page did
      }
      if (!reading.signal.aborted && !this.over) await new Promise((done) => setTimeout(done, AGAIN_MS));
    }
    if (this.reading === reading) this.reading = null;
  }

  stop() {
    this.reading?.abort();
    this.reading = null;
  }

  async read(signal) {
    const headers = { accept: "text/event-stream" };
    if (this.last) headers["last-event-id"] = this.last;
    const answer = await fetch(`${this.box.dataset.source}&follow=true&unfinished=true&tail=${FIRST}`, { headers, signal });
    this.over = [403, 404, 410].includes(answer.status); // asking again does not help
    if (!answer.ok) throw new Error(answer.status);
    for await (const frames of partsOf(answer.body, "\n\n")) {
      await inSlices(frames, (frame) => this.take(frame));
      this.soon();
      this.look();
    }
  }

  take(frame) {
    if (!frame.includes("data: ")) return; // the server is still there
    const id = /^id: (\d+)$/m.exec(frame);
    const body = JSON.parse(frame.slice(frame.indexOf("data: ") + 6));
    if (/^event: log$/m.test(frame)) this.add(body);
    else if (/^event: end$/m.test(frame)) this.end();
    if (!id) return;
    if (!this.last && this.lines.length >= FIRST) this.partial = true;
    this.last = id[1];
  }

  add(line) {
    const source = `${line.index} ${line.attempt} ${line.stream}`;
    const begun = this.begun.get(source);
    const known = begun?.starts.get(line.offset);
    // sent again after a lost connection
    if (line.offset <= (this.seen.get(source) ?? -1) && known === undefined) return;
    if (known !== undefined) begun.text = begun.text.slice(0, known);
    this.seen.set(source, line.offset);
    if (begun && !line.notice && begun.text.length < LONGEST_LINE) {
      this.goOn(begun, line, source);
      return;
    }
    const style = this.styles.get(source);
    const rows = this.rowsOf(line);
    const starts = new Map([[line.offset, 0]]);
    if (line.continued) this.begun.set(source, { row: rows.at(-1), text: line.line, style, line, starts });
    else this.begun.delete(source);
    this.lines.push(...rows);
    if (!this.following) this.unseen += 1;
    if (this.lines.length > KEPT * 1.1) this.forget(this.lines.length - KEPT);
  }

  // The row of a line that had not ended gets what is new of it.
  goOn(begun, line, source) {
    begun.starts.set(line.offset, begun.text.length);
    begun.text += line.line;
    const styles = new Map([[source, begun.style ?? PLAIN]]);
    const [row] = this.rowsOf({ ...begun.line, notice: "", line: begun.text }, styles);
    Object.assign(begun.row, row);
    this.styles.set(source, styles.get(source));
    if (!line.continued) this.begun.delete(source);
    const index = this.lines.lastIndexOf(begun.row);
    this.shown.get(index)?.remove();
    this.shown.delete(index);
  }

  // What is kept of a line: as little as a row needs.
  rowsOf(line, styles = this.styles) {
    const source = `${line.index} ${line.attempt} ${line.stream}`;
    const [runs, style] = runsOf(line.line, styles.get(source) ?? PLAIN);
    styles.set(source, style);
    const row = {
      text: runs.map(([, text]) => text).join(""),
      runs: runs.some(([classes]) => classes) ? runs : null,
      err: line.stream === "stderr",
      at: line.at.slice(11, 19),
      who: this.many ? line.index + (line.attempt ? `#${line.attempt}` : "") : "",
      key: keyOf(line),
    };
    return line.notice ? [{ text: line.notice, notice: true }, row] : [row];
  }

  forget(count) {
    this.lines.splice(0, count);
    this.partial = true;
    this.looked = Math.max(0, this.looked - count);
    const gone = this.hits.filter((hit) => hit < count).length;
    this.hits = this.hits.slice(gone).map((hit) => hit - count);
    this.hit = Math.max(-1, this.hit - gone);
    this.redraw();
    if (!this.following) this.box.scrollTop -= count * ROW_PX;
  }

  end() {
    this.over = true;
    const bad = !["", "succeeded", "killed"].includes(this.box.dataset.ended);
    const at = bad && this.following ? this.lines.findLastIndex((line) => line.err) : -1;
    if (at >= 0) this.centre(at);
    else this.soon();
  }

  // The lines before those there are, as many as the server gives; what is on the screen stays there.
  async loadOlder() {
    this.partial = false;
    this.tell();
    this.count.textContent = "loading";
    const answer = await fetch(`${this.box.dataset.source}&tail=${KEPT}`, { headers: { accept: "application/x-ndjson" } });
    if (!answer.ok) throw new Error(answer.status);
    const known = this.lines.find((line) => line.key)?.key;
    const earlier = [];
    const styles = new Map();
    const pieces = new Map(); // lines of which the end has not come
    let met = false;
    for await (const texts of partsOf(answer.body, "\n")) {
      await inSlices(texts, (text) => {
        const line = JSON.parse(text);
        met ||= keyOf(line) === known;
        if (met) return;
        const source = `${line.index} ${line.attempt} ${line.stream}`;
        const whole = pieces.get(source) ?? { ...line, line: "" };
        whole.line += line.line;
        if (line.continued) pieces.set(source, whole);
        else pieces.delete(source);
        if (!line.continued) earlier.push(...this.rowsOf(whole, styles));
      });
    }
    const top = this.box.scrollTop + earlier.length * ROW_PX;
    this.lines = earlier.concat(this.lines);
    this.redraw();
    if (this.following) this.toEnd();
    else this.box.scrollTop = top;
    const current = this.hits[this.hit];
    this.restart();
    await this.look();
    this.hit = current === undefined ? -1 : this.hits.indexOf(current + earlier.length);
    this.counted();
  }

  matches(line) {
    return !line.notice && line.text.toLowerCase().includes(this.asked);
  }

  async search() {
    this.asked = this.find.value.toLowerCase();
    this.restart();
    const asked = await this.look();
    if (asked !== this.asked) return; // somebody typed on
    this.redraw();
    if (asked && this.hits.length && this.hit < 0) this.jump(-1);
  }

  restart() {
    this.hits = [];
    this.hit = -1;
    this.looked = 0;
  }

  // Looks through the lines that nobody has looked through, a slice at a time: those that come meanwhile too. There is one
  // such walk at a time, so no line is counted twice; what it looked for is its answer.
  look() {
    this.looking ??= this.walk().finally(() => (this.looking = null));
    return this.looking;
  }

  async walk() {
    while (this.asked && this.looked < this.lines.length) {
      const until = performance.now() + SLICE_MS;
      while (this.looked < this.lines.length && performance.now() < until) {
        const stop = Math.min(this.lines.length, this.looked + LOOKED_AT);
        for (; this.looked < stop; this.looked++) if (this.matches(this.lines[this.looked])) this.hits.push(this.looked);
      }
      await pause();
    }
    this.counted();
    return this.asked;
  }

  counted() {
    const place = this.hit >= 0 ? `${(this.hit + 1).toLocaleString("en")} of ` : "";
    const where = this.partial ? ` in the last ${this.lines.length.toLocaleString("en")} lines` : "";
    this.count.textContent = this.asked ? `${place}${this.hits.length.toLocaleString("en")}${where}` : "";
  }

  jump(step) {
    if (!this.hits.length) return;
    if (this.hit < 0) this.hit = step > 0 ? -1 : this.hits.length;
    this.hit = (this.hit + step + this.hits.length) % this.hits.length;
    this.centre(this.hits[this.hit]);
    this.counted();
  }

  centre(index) {
    this.following = false;
    this.draw();
    this.box.scrollTop = (index - Math.floor(this.box.clientHeight / ROW_PX / 2)) * ROW_PX;
    this.redraw();
    this.tell();
  }

  soon() {
    this.due ??= requestAnimationFrame(() => {
      this.due = null;
      if (this.following) this.toEnd();
      else this.draw();
      this.tell();
    });
  }

  redraw() {
    for (const row of this.shown.values()) row.remove();
    this.shown.clear();
    this.draw();
  }

  // The rows that can be seen, between spaces as high as all others.
  draw() {
    if (!this.lines.length) return;
    if (!this.drawn) this.rows.replaceChildren();
    this.drawn = true;
    const top = this.following ? this.lines.length * ROW_PX : this.box.scrollTop;
    const high = Math.ceil(this.box.clientHeight / ROW_PX);
    const first = Math.max(0, Math.min(Math.floor(top / ROW_PX), this.lines.length - high) - BESIDE);
    const stop = Math.min(this.lines.length, first + high + 2 * BESIDE);
    for (const [index, row] of this.shown) {
      if (index >= first && index < stop) continue;
      row.remove();
      this.shown.delete(index);
    }
    let before = this.rows.firstChild;
    for (let index = first; index < stop; index++) {
      let row = this.shown.get(index);
      if (row) {
        before = row.nextSibling;
        continue;
      }
      row = this.row(index);
      this.shown.set(index, row);
      this.rows.insertBefore(row, before);
    }
    this.rows.style.paddingTop = `${first * ROW_PX}px`;
    const rest = this.box.clientHeight % ROW_PX; // at the end a whole row stands at the top
    this.rows.style.paddingBottom = `${(this.lines.length - stop) * ROW_PX + rest}px`;
  }

  row(index) {
    const line = this.lines[index];
    const row = document.createElement("div");
    if (line.notice) return Object.assign(row, { className: "faint", textContent: line.text });
    if (line.err) row.className = "err";
    if (index === this.hits[this.hit]) row.classList.add("hit");
    row.append(span("at", line.at));
    if (this.many) row.append(span("who", line.who));
    row.append(Object.assign(document.createElement("i"), { textContent: line.err ? "err" : "" }));
    row.append(this.marked(line));
    return row;
  }

  // A line in its colours, with what is looked for marked.
  marked(line) {
    const all = span("", "");
    const lower = line.text.toLowerCase();
    const ends = [];
    for (let at = 0; this.asked && (at = lower.indexOf(this.asked, at)) >= 0; at += this.asked.length) {
      ends.push(at, at + this.asked.length);
    }
    let at = 0;
    for (const [classes, text] of line.runs ?? [["", line.text]]) {
      const into = classes ? all.appendChild(span(classes, "")) : all;
      const stop = at + text.length;
      while (at < stop) {
        const passed = ends.findIndex((end) => end > at);
        const to = Math.min(stop, passed < 0 ? stop : ends[passed]);
        const piece = line.text.slice(at, to);
        into.append(passed % 2 === 1 ? Object.assign(document.createElement("mark"), { textContent: piece }) : piece);
        at = to;
      }
    }
    return all;
  }
}

function keyOf(line) {
  return `${line.index} ${line.attempt} ${line.stream} ${line.offset}`;
}

function span(kind, text) {
  return Object.assign(document.createElement("span"), { className: kind, textContent: text });
}

// The texts of a stream between separators, those that came together at a time.
async function* partsOf(body, separator) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split(separator);
    rest = parts.pop();
    yield parts.filter(Boolean);
  }
}

function pause() {
  return new Promise((done) => setTimeout(done));
}

async function inSlices(items, use) {
  let began = performance.now();
  for (const item of items) {
    use(item);
    if (performance.now() - began > SLICE_MS) {
      await pause();
      began = performance.now();
    }
  }
}
