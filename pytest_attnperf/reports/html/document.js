// A page of sections: shows what needs scripts, and draws its charts.

for (const scripted of document.querySelectorAll(".scripted")) scripted.hidden = false;
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((each) => (each.open = true)));

async function startDocument() {
  const { sections, config } = JSON.parse(byId("data").textContent);
  await loaded;
  await drawSections(sections, config);
  document.documentElement.dataset.drawn = "charts";
}

startDocument().catch((error) => {
  byId("trouble").hidden = false;
  byId("trouble").textContent = `Part of this page cannot be shown: ${error.message}. The tables hold every figure.`;
});
