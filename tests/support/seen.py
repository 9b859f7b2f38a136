"""What a browser can tell about the page it shows, as expressions of JavaScript: each is empty when
all is well.
"""

from __future__ import annotations

from tests.house.repository import ROOT

CUT = """[...document.querySelectorAll('h1, h2, .badge, .reason, .button, dd, th')].filter(
    (one) => one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).textOverflow !== 'ellipsis'
    && getComputedStyle(one).display !== 'inline' && one.clientWidth).map((one) => one.outerHTML.slice(0, 90))"""
"""Words that are cut or that stick out."""

COVERED = """[...document.querySelectorAll('main li')].flatMap((item) => {
  const texts = document.createTreeWalker(item, NodeFilter.SHOW_TEXT);
  const boxes = [], range = document.createRange();
  for (let node; (node = texts.nextNode()); ) {
    if (!node.data.trim()) continue;
    range.selectNodeContents(node);
    boxes.push(...[...range.getClientRects()].map((box) => [box, node.data.trim()]));
  }
  return boxes.flatMap(([one, words], number) => boxes.slice(number + 1)
    .filter(([other]) => Math.min(one.right, other.right) - Math.max(one.left, other.left) > 1
      && Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top) > 4)
    .map(([, others]) => `${words} | ${others}`));
})"""
"""Texts of a list that stand on each other."""

AXIS_OVERLAPS = """[...document.querySelectorAll('.axis')].flatMap((axis) => {
  const labels = [...axis.querySelectorAll('text')].map((one) => [one.getBoundingClientRect(), one.textContent]);
  const shown = labels.filter(([box]) => box.width);
  return shown.slice(1).filter(([box], at) => shown[at][0].right + 2 > box.left).map(([, words]) => words);
})"""
"""Labels of a time axis that reach into the one before."""

STICKING_OUT = """[...document.querySelectorAll('details.menu')].filter((one) => one.checkVisibility()).map((menu) => {
  menu.open = true;
  const panel = menu.querySelector('.panel').getBoundingClientRect();
  menu.open = false;
  return panel.left < 0 || panel.right > innerWidth ? menu.textContent.trim().slice(0, 40) : '';
}).filter(Boolean)"""
"""Menus that are not wholly in the window when they are open."""

HIDDEN = """[...document.querySelectorAll('td .badge')].filter((one) => one.checkVisibility()
    && one.getBoundingClientRect().right > one.closest('td').getBoundingClientRect().right + 0.5)
    .map((one) => one.textContent)"""
"""States that their cell cuts."""

UNLABELLED = """[...document.querySelectorAll('.plain td.num')].filter((one) => one.checkVisibility()
    && /^[0-9.,]+$/.test(one.innerText.trim())).map((one) => one.outerHTML.slice(0, 90))"""
"""Numbers without a word beside them, where a table has no headings."""

CONTRASTS = """(() => {
  const channel = (c) => { c /= 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
  const light = (rgb) => 0.2126 * channel(rgb[0]) + 0.7152 * channel(rgb[1]) + 0.0722 * channel(rgb[2]);
  const rgb = (text) => { const all = text.match(/[\\d.]+/g).map(Number);
    return all.length < 4 || all[3] ? all : null; };
  const ground = (one) => { for (let at = one; at; at = at.parentElement) {
    const found = rgb(getComputedStyle(at).backgroundColor); if (found) return found; } return [255, 255, 255]; };
  const texts = [...document.querySelectorAll('body *')].filter((one) => one.checkVisibility()
    && !one.closest('svg') && [...one.childNodes].some((n) => n.nodeType === 3 && n.data.trim()));
  return texts.map((one) => { const [a, b] = [light(rgb(getComputedStyle(one).color)), light(ground(one))];
    return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), one.outerHTML.slice(0, 80)]; }).filter(([r]) => r < 4.5);
})()"""
"""Texts whose contrast is below that of WCAG AA."""

AXE = ROOT / ".axe" / "node_modules" / "axe-core" / "axe.min.js"
VIOLATIONS = """axe.run({resultTypes: ['violations']}).then((found) => JSON.stringify(found.violations.map(
    (one) => [one.id, one.nodes.slice(0, 3).map((node) => node.html.slice(0, 120))])))"""
"""What axe-core finds, once `AXE` has been run in the page."""

BROKEN = """(() => {
  const texts = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT);
  const range = document.createRange(), found = [], free = 'code, h1, pre, dd, .rows, .log, .reason, .sr';
  for (let node; (node = texts.nextNode()); ) {
    if (node.parentElement.closest(free) || !node.parentElement.checkVisibility()) continue;
    for (const word of node.data.matchAll(/[A-Za-z]{3,}/g)) {
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      if (new Set([...range.getClientRects()].map((box) => Math.round(box.top))).size > 1) found.push(word[0]);
    }
  }
  return found;
})()"""
"""Words of letters that stand on two lines, where no name or output may be broken."""

WATCH_SHIFTS = """(() => {
  window.shifted = 0;
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) window.shifted += entry.value;
  }).observe({ type: 'layout-shift', buffered: true });
})()"""
"""Sums in `shifted` how much has moved under the reader since the page was opened."""

BLOCKING = """performance.getEntriesByType('resource').filter((one) => one.renderBlockingStatus === 'blocking')
    .map((one) => new URL(one.name).pathname)"""
ELEMENTS = "document.querySelectorAll('*').length"
"""Files that are loaded before anything is painted, and how much is painted: what the first paint
takes depends on.
"""
