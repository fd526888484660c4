// Light or dark, as the reader chose last; and the moment when everything is loaded.

function showTheme(theme) {
  const dark = theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  if (theme) document.documentElement.dataset.theme = theme;
  byId("theme").textContent = dark ? "Light" : "Dark";
  byId("theme").setAttribute("aria-label", dark ? "Switch to light colours" : "Switch to dark colours");
  return dark;
}

let dark = showTheme(remembered("attnperf-theme"));
byId("theme").addEventListener("click", () => {
  dark = showTheme(dark ? "light" : "dark");
  remember("attnperf-theme", dark ? "dark" : "light");
});

const loaded = new Promise((resolve) => addEventListener("load", resolve));
