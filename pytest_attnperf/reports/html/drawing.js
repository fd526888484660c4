// Draws Vega-Lite specifications as SVG. Expressions are interpreted: nothing is evaluated.

const views = new Map();

/** A copy of the specification with its data sets, and with the scales of the series that are drawn. */
function filledSpec(spec, datasets, palette, width) {
  const copy = structuredClone(spec);
  copy.datasets = datasets;
  // Vega warns of a layer without data, whose scale it cannot know.
  if (copy.layer) copy.layer = copy.layer.filter(({ data }) => !data?.name || datasets[data.name]?.length);
  const present = new Set((datasets.points ?? []).map((point) => point.series));
  const names = [...(palette?.keys() ?? [])].filter((name) => present.has(name));
  const columns = Math.max(1, Math.floor(width / 170));
  const walk = (node) => {
    for (const [key, child] of Object.entries(node ?? {})) {
      if (key === "datasets" || typeof child !== "object" || child === null) continue;
      if (palette && (key === "color" || key === "shape") && child.field === "series") {
        child.scale = { domain: names, range: names.map((name) => palette.get(name)[key]) };
        if (child.legend) child.legend = { ...child.legend, columns };
      }
      if (key === "y" && child.type === "nominal" && datasets.rows) child.scale = { domain: datasets.rows.map(({ row }) => row) };
      walk(child);
    }
  };
  walk(copy);
  return copy;
}

/** Draw into `place`; a view drawn there before is ended. Expressions are interpreted: nothing is evaluated. */
async function drawChart(place, spec, datasets, { config, palette, opened } = {}) {
  views.get(place)?.finalize();
  views.delete(place);
  const filled = filledSpec(spec, datasets, palette, place.clientWidth || 600);
  const options = { mode: "vega-lite", renderer: "svg", actions: false, ast: true, defaultStyle: false, tooltip, config };
  const { view } = await window.vegaEmbed(place, filled, options);
  views.set(place, view);
  if (!opened) return;
  view.addEventListener("click", (_, item) => {
    if (Number.isInteger(item?.datum?.index)) opened(item.datum.index);
  });
  makeReachable(place, opened);
  // Vega draws again where the window changes.
  view.addResizeListener(() => requestAnimationFrame(() => makeReachable(place, opened)));
}

/** Marks of cases in `place`, in the order of their data. */
const caseMarks = (place) => [...place.querySelectorAll(".role-mark path")].filter((mark) => Number.isInteger(mark.__data__?.datum?.index));

/** One mark of a chart is reached by Tab, its neighbours by arrows; Enter opens its case, and focus shows its figures. */
function makeReachable(place, opened) {
  const marks = caseMarks(place);
  const current = marks.find((mark) => mark === document.activeElement) ?? marks[0];
  for (const mark of marks) {
    mark.setAttribute("tabindex", mark === current ? "0" : "-1");
    mark.setAttribute("role", "button");
  }
  place.caseOpened = opened;
  if (place.isReachable) return;
  place.isReachable = true;
  place.addEventListener("keydown", (event) => moveAmong(place, event));
  place.addEventListener("focusin", ({ target }) => {
    const { left, top, width, height } = target.getBoundingClientRect();
    if (target.matches(":focus-visible")) tooltip(null, { clientX: left + width, clientY: top + height }, null, target.__data__?.tooltip);
  });
  place.addEventListener("focusout", () => (byId("tooltip").hidden = true));
}

function moveAmong(place, event) {
  const marks = caseMarks(place);
  const at = marks.indexOf(event.target);
  if (at < 0) return;
  if (event.key === "Enter" || event.key === " ") {
    event.preventDefault();
    byId("tooltip").hidden = true;
    place.caseOpened(event.target.__data__.datum.index);
    return;
  }
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -marks.length, End: marks.length }[event.key];
  if (!step) return;
  event.preventDefault();
  const next = marks[Math.min(marks.length - 1, Math.max(0, at + step))];
  event.target.setAttribute("tabindex", "-1");
  next.setAttribute("tabindex", "0");
  next.focus();
}

/** Vega's tooltip handler: an object's fields as a list, each as text. */
function tooltip(_, event, __, value) {
  const box = byId("tooltip");
  const shown = value && typeof value === "object";
  box.hidden = !shown;
  if (!shown) return;
  const list = element("dl");
  for (const [name, text] of Object.entries(value)) {
    if (text === "" || text === "-" || text === "undefined" || text === "null") continue;
    list.append(element("dt", { textContent: name }), element("dd", { textContent: String(text) }));
  }
  // The top layer, where an open panel is, covers everything outside of it.
  (document.querySelector("dialog[open]") ?? document.body).append(box);
  box.replaceChildren(list);
  const left = Math.min(event.clientX + 14, innerWidth - box.offsetWidth - 8);
  const below = event.clientY + 16 + box.offsetHeight < innerHeight;
  box.style.left = `${Math.max(8, left)}px`;
  box.style.top = `${below ? event.clientY + 16 : Math.max(8, event.clientY - box.offsetHeight - 12)}px`;
}
