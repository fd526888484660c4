// The table of cases of the first page and of commits: the run page's table, whose rows are links.

const SVG = "http://www.w3.org/2000/svg";
const root = document.body.dataset.root;

/** A time as the program prints it: four significant digits, and the longest unit in which it is at least one. */
function timeText(us) {
  if (us === null || us === undefined) return "-";
  let [unit, size] = [["s", 1e6], ["ms", 1e3], ["us", 1]].find(([, each]) => us >= each) ?? ["ns", 1e-3];
  const value = us / size;
  const kept = value >= 0.1 ? 4 : 2;
  const exponent = Number(value.toExponential(kept - 1).split("e")[1]);
  return `${value.toFixed(Math.min(20, Math.max(0, kept - 1 - exponent)))} ${unit}`;
}

/** Tenths of a percent as the program prints a change. */
function changeText(tenths) {
  if (tenths === null) return "-";
  return tenths === 0 ? "0.0 %" : `${tenths > 0 ? "+" : "-"}${(Math.abs(tenths) / 10).toFixed(1)} %`;
}

/** A column of texts: each different text once, and its place for every row. `sort` are figures to sort by. */
function makeColumn(name, texts, sort, more = {}) {
  const places = new Map();
  const codes = texts.map((text) => places.get(text) ?? (places.set(text, places.size), places.size - 1));
  return { name, words: [...places.keys()], codes, ...(sort ? { sort } : {}), ...more };
}

/** The columns that name a case, for cases of these numbers. */
function nameColumns(numbers) {
  const { words, rows } = window.attnperfCases;
  const named = ["suite", "backend", "device"].map((name, place) => ({
    name, words: words[name], codes: numbers.map((number) => rows[number][place]),
  }));
  const [suite, backend, device] = named;
  return [suite, backend, makeColumn("workload", numbers.map((number) => rows[number][3])), device];
}

class SiteTable extends CaseTable {
  /** `numbers` has the case of each row; `draw(name, index)` a cell's contents, where these are no text. */
  constructor(numbers, columns, draw) {
    const shown = columns.map((column) => ({ ...column, words: [...column.words] }));
    super({ columns: shown, keys: numbers.map(String), fails: [] }, null);
    this.numbers = numbers;
    this.draws = draw;
    const searched = ["suite", "backend", "workload", "device", "verdict"];
    this.haystacks = numbers.map((_, index) => searched.map((name) => this.text(name, index)).join(" ").toLowerCase());
  }

  row(index) {
    const made = element("tr");
    const address = root + window.attnperfCases.rows[this.numbers[index]][4];
    for (const head of byId("table").tHead.rows[0].cells) {
      const name = head.dataset.column;
      const text = this.text(name, index);
      const own = this.draws(name, index);
      if (name === "workload") {
        const brief = ["suite", "backend", "device"].map((part) => this.text(part, index)).join(" ");
        const link = element("a", { href: address, textContent: text });
        made.append(element("th", { scope: "row" }, link, element("span", { className: "brief", textContent: brief })));
      } else if (name === "verdict") {
        made.append(element("td", { className: "verdict-cell" }, verdictMark(text)));
      } else {
        const cell = element("td", { className: `${head.className} ${name} ${own?.kind ?? ""}`.trim() });
        cell.append(own?.node ?? text);
        made.append(cell);
      }
    }
    return made;
  }
}

/** Connects form, table and address; `first` is the order at the start, `orders` are [value, text] of the choice. */
function startTable(table, first, orders) {
  const change = (changes) => {
    writeState(changes);
    follow();
  };
  const state = () => ({ sort: first, ...readState() });
  function follow() {
    const now = state();
    table.draw(now);
    const text = byId("filter-text");
    if (text.value.trim() !== (now.q ?? "")) text.value = now.q ?? "";
    for (const name of ["device", "suite", "backend"]) byId(`filter-${name}`).value = now[name] ?? "";
    byId("sort").value = now.sort;
    byId("clear").hidden = table.order.length === table.rows.keys.length;
  }
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  byId("filter-text").addEventListener("input", (event) => change({ q: event.target.value.trim() }));
  for (const name of ["device", "suite", "backend"]) {
    const select = byId(`filter-${name}`);
    const { words, codes } = table.columns.get(name);
    const used = [...new Set(codes)].map((code) => words[code]).sort(natural.compare);
    select.append(...used.map((value) => element("option", { value, textContent: value })));
    select.closest("label").hidden = used.length < 2;
    select.addEventListener("change", () => change({ [name]: select.value }));
  }
  byId("sort").append(...orders.map(([value, text]) => element("option", { value, textContent: text })));
  byId("sort").addEventListener("change", () => change({ sort: byId("sort").value }));
  byId("clear").addEventListener("click", () => change({ q: "", device: "", suite: "", backend: "" }));
  byId("more").addEventListener("click", () => table.more());
  table.makeHeads((sort) => change({ sort }));
  addEventListener("hashchange", follow);
  addEventListener("popstate", follow);
  follow();
}
