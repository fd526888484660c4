// Charts of a page's sections: each has its specification and data in the page.

/** Draw every figure of the sections, in the order of the page. */
async function drawSections(charts, config) {
  for (const place of document.querySelectorAll("[data-chart]")) {
    const { spec, data } = charts[Number(place.dataset.chart)];
    await drawChart(place, spec, data, { config });
  }
}
