// The view as it stands in the address: #q=...&verdict=A;B&sort=-change&case=..., and &view=charts scrolls there.

const byId = (id) => document.getElementById(id);

/** An element with properties, attributes (under `attributes`) and children; text never becomes markup. */
function element(tag, properties = {}, ...children) {
  const { attributes = {}, ...own } = properties;
  const made = Object.assign(document.createElement(tag), own);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

const NAMES = ["q", "device", "suite", "backend", "verdict", "sort", "group", "figure", "roof", "family", "case", "view"];

/** Settings in the address; unknown parts are left out. */
function readState() {
  const found = {};
  let parts;
  try {
    parts = new URLSearchParams(location.hash.slice(1));
  } catch {
    return found;
  }
  for (const name of NAMES) if (parts.get(name)) found[name] = parts.get(name);
  return found;
}

/** Change settings ('' removes one). A new entry of the browser's history only where `push` asks for it. */
function writeState(changes, push = false) {
  const next = { ...readState(), ...changes };
  const parts = new URLSearchParams();
  for (const name of NAMES) if (next[name]) parts.set(name, next[name]);
  const text = parts.toString();
  if (text === location.hash.slice(1)) return;
  try {
    history[push ? "pushState" : "replaceState"](null, "", text ? `#${text}` : location.pathname + location.search);
  } catch {
    // A browser may forbid it for files; the view then has no address.
  }
}

/** Storage may throw for a page from a disk. */
function remembered(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

function remember(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch {
    // Then it holds until the page is closed.
  }
}

/** Base64 of zlib data as text. */
async function inflated(packed) {
  if (typeof DecompressionStream === "undefined") {
    throw new Error("This browser has no DecompressionStream (Chrome 80, Firefox 113, Safari 16.4 or later have)");
  }
  const bytes = Uint8Array.from(atob(packed), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).text();
}
