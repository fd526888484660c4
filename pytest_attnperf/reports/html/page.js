// The page: reads its data, connects controls with the state in the address, and follows it.

const data = JSON.parse(byId("data").textContent);

/** Everything that needs the rows. */
async function start() {
  const rows = JSON.parse(await inflated(byId("rows").textContent));
  const table = new CaseTable(rows, openCase);
  const panel = new CasePanel(data, table);
  const charts = new PageCharts(data, table, openCase);
  const picture = new FirstPicture(data, table, charts, openCase);
  let drawn = null;
  let opener = null;
  let waiting = 0;

  function openCase(index) {
    opener ??= document.activeElement;
    writeState({ case: rows.keys[index] }, readState().case === undefined);
    follow();
  }

  function closeCase() {
    writeState({ case: "" });
    follow();
  }

  function change(changes) {
    writeState(changes);
    follow();
  }

  async function drawCharts() {
    await loaded;
    loadBundle();
    if (!drawCharts.before) await picture.draw();
    await charts.draw(table.order, readState());
    if (!drawCharts.before) await drawSections(data.sections, data.config);
    // A section that was hidden, or had no charts in it, when the browser looked for it.
    if (!drawCharts.before) visit(readState().view ?? location.hash.slice(1));
    drawCharts.before = true;
    document.documentElement.dataset.drawn = "charts";
  }

  /** Draws at once the first time; later only what a reader can see, so that typing a filter stays quick. */
  function whenSeen(draw) {
    whenSeen.observer?.disconnect();
    if (!drawCharts.before || !byId("charts")) return draw();
    whenSeen.observer = new IntersectionObserver((entries, observer) => {
      if (!entries.some((entry) => entry.isIntersecting)) return;
      observer.disconnect();
      draw();
    }, { rootMargin: "200px" });
    whenSeen.observer.observe(byId("charts"));
  }

  /** Update table, charts and panel to the settings in the address. */
  function follow() {
    const state = readState();
    const { case: name, group, figure, roof, family, view, ...listed } = state;
    const wanted = JSON.stringify(listed);
    if (drawn !== wanted) {
      table.draw(state);
      showControls(state, table);
    }
    const charted = JSON.stringify({ ...listed, sort: "", group, figure, roof, family });
    if (follow.charted !== charted) {
      clearTimeout(waiting);
      waiting = setTimeout(() => whenSeen(() => drawCharts().catch(trouble)), drawn === null ? 0 : 150);
    }
    [drawn, follow.charted] = [wanted, charted];
    followCase(name);
  }

  function followCase(name) {
    const index = name === undefined ? -1 : rows.keys.indexOf(name);
    if (index < 0) {
      panel.close();
      opener?.focus?.();
      opener = null;
    } else if (panel.index !== index) {
      loaded.then(loadBundle).then(() => panel.show(index)).catch(trouble);
    }
  }

  connect(table, panel, change, closeCase, openCase);
  addEventListener("hashchange", follow);
  addEventListener("popstate", follow);
  follow();
  performance.mark("attnperf-table");
  document.documentElement.dataset.filled = "table";
}

/** Runs the chart library, which the page holds as text: reading it would keep a reader from the table. */
function loadBundle() {
  if (window.vegaEmbed) return;
  document.head.append(element("script", { textContent: byId("bundle").textContent }));
}

function connect(table, panel, change, closeCase, openCase) {
  table.makeHeads((sort) => change({ sort }));
  makeFilters(table, change);
  byId("more").addEventListener("click", () => table.more());
  byId("case-close").addEventListener("click", closeCase);
  // Escape and whatever else closes a dialog.
  byId("case").addEventListener("close", () => panel.index !== null && closeCase());
  byId("case").addEventListener("click", (event) => event.target === byId("case") && closeCase());
  byId("case-previous").addEventListener("click", () => openCase(panel.neighbour(-1)));
  byId("case-next").addEventListener("click", () => openCase(panel.neighbour(1)));
  const selects = { "length-group": "group", "length-figure": "figure", "roofline-device": "roof", "chart-family": "family" };
  for (const [id, name] of Object.entries(selects)) {
    byId(id)?.addEventListener("change", (event) => change({ [name]: event.target.value }));
  }
  for (const place of document.querySelectorAll("[data-suite]")) {
    const { suite, device } = place.dataset;
    const button = element("button", { type: "button", className: "name", textContent: place.textContent });
    button.addEventListener("click", () => {
      change({ suite, device: table.columns.get("device")?.words.length > 1 ? device : "" });
      visit("cases");
    });
    place.replaceWith(button);
  }
  for (const place of document.querySelectorAll("[data-open]")) {
    const button = element("button", { type: "button", className: "name", textContent: place.textContent });
    button.addEventListener("click", () => openCase(Number(place.dataset.open)));
    place.replaceWith(button);
  }
  for (const scripted of document.querySelectorAll(".scripted")) scripted.hidden = false;
  // The address holds the view, so that a link within the page must not replace it.
  for (const link of document.querySelectorAll("a[href^='#']")) {
    link.addEventListener("click", (event) => {
      event.preventDefault();
      visit(link.hash.slice(1));
    });
  }
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((each) => (each.open = true)));
}

function visit(id) {
  const section = id && document.getElementById(id);
  if (section?.localName !== "section") return;
  section.scrollIntoView();
  section.focus({ preventScroll: true });
}

function makeFilters(table, change) {
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  byId("filter-text").addEventListener("input", (event) => change({ q: event.target.value.trim() }));
  for (const name of ["device", "suite", "backend"]) {
    const select = byId(`filter-${name}`);
    const words = [...(table.columns.get(name)?.words ?? [])].sort(natural.compare);
    select.append(...words.map((value) => element("option", { value, textContent: value })));
    select.closest("label").hidden = words.length < 2;
    select.addEventListener("change", () => change({ [name]: select.value }));
  }
  const verdicts = table.columns.get("verdict");
  const ranked = (verdicts?.words ?? []).map((word, code) => [verdicts.sort[verdicts.codes.indexOf(code)], word]).sort((a, b) => a[0] - b[0]);
  for (const [, word] of ranked) {
    const box = element("input", { type: "checkbox", value: word });
    box.addEventListener("change", () => {
      const checked = [...byId("filter-verdict").querySelectorAll("input:checked")].map((each) => each.value);
      change({ verdict: checked.join(";") });
    });
    byId("filter-verdict").append(element("label", {}, box, " ", verdictMark(word)));
  }
  byId("clear").addEventListener("click", () => change({ q: "", device: "", suite: "", backend: "", verdict: "" }));
}

function showControls(state, table) {
  const text = byId("filter-text");
  if (text.value.trim() !== (state.q ?? "")) text.value = state.q ?? "";
  for (const name of ["device", "suite", "backend"]) byId(`filter-${name}`).value = state[name] ?? "";
  const chosen = new Set((state.verdict ?? "").split(";"));
  for (const box of byId("filter-verdict").querySelectorAll("input")) box.checked = chosen.has(box.value);
  byId("clear").hidden = table.order.length === table.rows.keys.length;
}

function trouble(error) {
  byId("trouble").hidden = false;
  byId("trouble").textContent = `Part of this page cannot be shown: ${error.message}. The rows below are the worst; results.json holds everything.`;
}

start().catch(trouble);
