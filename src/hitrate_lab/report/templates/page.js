// Everything is readable without this script; it sorts, filters, picks and remembers the theme.
"use strict";

const root = document.documentElement;

function remembered() {
  try { return localStorage.getItem("hitrate-theme"); } catch { return null; }
}

function remember(theme) {
  try { localStorage.setItem("hitrate-theme", theme); } catch { /* A file may have no storage. */ }
}

// Before the page is drawn, so that it does not flash in the other theme.
if (["light", "dark"].includes(remembered())) root.dataset.theme = remembered();

function say(words) {
  document.getElementById("spoken").textContent = words;
}

function prepareTheme() {
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const current = () => root.dataset.theme || (system.matches ? "dark" : "light");
  const other = () => (current() === "dark" ? "light" : "dark");
  const name = () => { button.textContent = other() === "dark" ? "☾ Dark" : "☀ Light"; };
  button.addEventListener("click", () => {
    root.dataset.theme = other();
    remember(root.dataset.theme);
    name();
  });
  system.addEventListener("change", name);
  name();
  button.hidden = false;
}

// Numbers before texts, texts by their own numbers ("fold 2" before "fold 10"), nothing last.
function key(cell) {
  const value = cell.dataset.value ?? "";
  if (value !== "") return Number(value);
  const text = cell.dataset.value === undefined ? cell.textContent.trim() : "";
  return text === "" || text === "–" ? null : text;
}

function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
  return a.localeCompare(b, undefined, { numeric: true });
}

function sortBy(table, head) {
  const column = [...head.parentNode.children].indexOf(head);
  const now = head.getAttribute("aria-sort");
  const order = now ? (now === "ascending" ? "descending" : "ascending") : head.dataset.first;
  const sign = order === "ascending" ? 1 : -1;
  const rows = [...table.tBodies[0].rows].map((row) => [key(row.cells[column]), row]);
  rows.sort(([a], [b]) => {
    if (a === null || b === null) return (a === null) - (b === null);
    return sign * compare(a, b);
  });
  table.tBodies[0].append(...rows.map(([, row]) => row));
  for (const cell of head.parentNode.children) cell.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", order);
  say(`Sorted by ${head.textContent.trim()}, ${order}.`);
}

function prepareTables() {
  for (const table of document.querySelectorAll("table.sortable")) {
    for (const head of table.querySelectorAll("th[data-sort]")) {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      button.addEventListener("click", () => sortBy(table, head));
      head.append(button);
    }
  }
}

function prepareFilter() {
  for (const group of document.querySelectorAll(".filter")) {
    const section = group.closest("section");
    group.hidden = false;
    group.addEventListener("click", (event) => {
      const chosen = event.target.closest("button");
      if (!chosen) return;
      for (const button of group.children) button.setAttribute("aria-pressed", button === chosen);
      let shown = 0;
      for (const row of section.querySelectorAll("tr[data-kind]")) {
        row.hidden = Boolean(chosen.dataset.filter) && row.dataset.kind !== chosen.dataset.filter;
        shown += !row.hidden;
      }
      section.querySelector(".shown").textContent = shown;
      say(`${shown} rows shown.`);
    });
  }
}

function prepareChoice() {
  const form = document.querySelector(".pick");
  if (!form) return;
  const choose = () => {
    const [first, second] = [...form.querySelectorAll("select")].map((select) => select.value);
    for (const figure of document.querySelectorAll("[data-method]")) {
      const method = figure.dataset.method;
      figure.hidden = method !== first && method !== second;
      if (method === first) figure.parentNode.prepend(figure);
    }
    prepareScrolling();
  };
  form.hidden = false;
  form.addEventListener("change", choose);
  choose();
}

// Only a box that has more than it shows is a stop for the Tab key, and says so.
function prepareScrolling() {
  for (const box of document.querySelectorAll(".scroll")) {
    const sideways = box.scrollWidth > box.clientWidth + 1;
    const scrolls = sideways || box.scrollHeight > box.clientHeight + 1;
    box.classList.toggle("sideways", sideways);
    box.classList.toggle("scrolls", scrolls);
    if (scrolls) box.tabIndex = 0; else box.removeAttribute("tabindex");
  }
}

addEventListener("DOMContentLoaded", () => {
  prepareTheme();
  prepareTables();
  prepareFilter();
  prepareChoice();
  prepareScrolling();
  // Images have their size when the page is loaded.
  for (const event of ["load", "resize"]) addEventListener(event, prepareScrolling);
  document.addEventListener("toggle", prepareScrolling, true);
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    for (const one of closed) one.open = true;
  });
  addEventListener("afterprint", () => { for (const one of closed) one.open = false; });
});
