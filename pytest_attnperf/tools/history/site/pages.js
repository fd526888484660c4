// Starts the page: the first one, that of a case, or that of a commit.

const RUNS_AT_ONCE = 50;
const data = JSON.parse(byId("data").textContent);

function drawSpark(path, at, slower) {
  const made = document.createElementNS(SVG, "svg");
  for (const [name, value] of [["viewBox", "0 0 100 20"], ["preserveAspectRatio", "none"], ["class", "spark"], ["aria-hidden", "true"]]) {
    made.setAttribute(name, value);
  }
  for (const [kind, line] of [[slower ? "change" : "change good", at === null ? "" : `M${at} 0V20`], ["", path]]) {
    if (!line) continue;
    const drawn = document.createElementNS(SVG, "path");
    drawn.setAttribute("class", kind);
    drawn.setAttribute("d", line);
    made.append(drawn);
  }
  return made;
}

function startIndex() {
  if (!data.cases.length) return;
  const { cases, fleet } = data;
  const numbers = cases.map((_, number) => number);
  const [US, TIME, VERDICT, NEWEST, RUNS, RATIO, CHANGE, CHANGED, BEFORE, COMMIT, SPARK, AT] = cases[0].keys();
  const texts = (place) => cases.map((row) => row[place]);
  const names = (place) => cases.map((row) => fleet.commits[row[place]]?.[0] ?? "");
  const after = names(COMMIT);
  const between = names(BEFORE).map((before, number) => (before ? `${before} .. ${after[number]}` : ""));
  const columns = [
    ...nameColumns(numbers),
    makeColumn("time", texts(TIME), texts(US)),
    makeColumn("verdict", texts(VERDICT)),
    makeColumn("change", texts(CHANGE), texts(RATIO)),
    makeColumn("changed", texts(CHANGED), cases.map((row) => (row[COMMIT] < 0 ? null : row[COMMIT]))),
    makeColumn("between", between, cases.map((row) => (row[COMMIT] < 0 ? null : row[COMMIT]))),
    makeColumn("trend", cases.map(() => ""), texts(RATIO)),
    makeColumn("newest", texts(NEWEST)),
    makeColumn("runs", texts(RUNS).map(String), texts(RUNS)),
  ];
  const link = (place) => element("a", { className: "commit", href: fleet.commits[place][1], textContent: fleet.commits[place][0] });
  const table = new SiteTable(numbers, columns, (name, index) => {
    const row = cases[index];
    if (name === "trend") return { node: drawSpark(row[SPARK], row[AT], row[RATIO] > 1) };
    if (name === "change" && row[RATIO] !== null) return { node: row[CHANGE], kind: row[RATIO] > 1 ? "slower" : "faster" };
    if (name !== "between" || row[COMMIT] < 0) return undefined;
    const both = document.createDocumentFragment();
    both.append(link(row[BEFORE]), " .. ", link(row[COMMIT]));
    return { node: both };
  });
  startTable(table, "-changed", [
    ["-changed", "latest change"], ["-change", "largest slowdown"], ["change", "largest speedup"], ["-time", "longest time"],
    ["time", "shortest time"], ["workload", "workload"], ["backend", "backend"], ["-newest", "newest run"], ["-runs", "most runs"],
  ]);
  startFleet(fleet);
}

function startFleet(fleet) {
  const place = document.querySelector("[data-trend]");
  if (!place) return;
  new TrendCursor(place, fleet.commits.length, (index) => {
    const [name, href, day] = fleet.commits[index];
    const [slower, faster] = [fleet.slower[index], fleet.faster[index]];
    const facts = {
      commit: name, day, slower: `${slower}`, faster: `${faster}`,
      "became slower": fleet.became[0][index] || "", "became faster": fleet.became[1][index] || "",
    };
    return { at: fleet.zero, facts, href, said: `${name}, ${day}: ${slower} slower, ${faster} faster` };
  });
}

/** [first value, length] of stretches as the values; `step` is from one value to the next. */
function spread(stretches, step = 0) {
  return stretches.flatMap(([first, length]) => Array.from({ length }, (_, place) => first + step * place));
}

/** From the fastest to the slowest process of a point; '' for fewer than two. */
function spanText(own, index) {
  if (own.processes[index] < 2) return "";
  const us = own.us[index];
  return [own.low, own.high].map((millionths) => timeText(us * (1 + millionths[index] / 1e6))).join(" .. ");
}

function startCase() {
  const { commits, runs, branches } = window.attnperfRuns;
  const facts = (run) => {
    const [started, commit, branch] = runs[run];
    const [name, file] = commits[commit];
    return { started, name, href: root + file, branch: branches[branch] };
  };
  for (const own of data.series) {
    own.runs = spread(own.runs, 1);
    for (const name of ["processes", "verdicts"]) own[name] = spread(own[name]);
  }
  for (const place of document.querySelectorAll("[data-trend]")) {
    const own = data.series[Number(place.dataset.trend)];
    const [low, high] = own.borders;
    new TrendCursor(place, own.runs.length - own.first, (shown) => {
      const index = shown + own.first;
      const { started, name, href, branch } = facts(own.runs[index]);
      const [time, verdict] = [timeText(own.us[index]), data.words[own.verdicts[index]]];
      const processes = spanText(own, index);
      const read = { commit: name, started, time, processes, verdict, branch };
      return { at: (high - own.us[index]) / (high - low), facts: read, href, said: `${name}, ${started}: ${time}, ${verdict}` };
    });
  }
  showRuns(facts);
}

/** All runs of all series, newest first, page by page. */
function showRuns(facts) {
  const rows = data.series.flatMap((own) =>
    own.runs.map((run, index) => [run, own.us[index], spanText(own, index), own.processes[index], own.verdicts[index]]),
  );
  rows.push(...data.wrong.map(([run, verdict]) => [run, null, "", 0, verdict]));
  rows.sort((a, b) => b[0] - a[0]);
  const body = byId("run-table").tBodies[0];
  function add() {
    const from = body.rows.length;
    for (const [run, us, span, processes, code] of rows.slice(from, from + RUNS_AT_ONCE)) {
      const { started, name, href, branch } = facts(run);
      const verdict = data.words[code];
      body.append(
        element("tr", {},
          element("th", { scope: "row", className: "nowrap", textContent: started }),
          element("td", {}, element("a", { className: "commit", href, textContent: name })),
          element("td", { className: "number", textContent: timeText(us) }),
          element("td", { className: "nowrap", textContent: span }),
          element("td", { className: "number", textContent: processes || "" }),
          element("td", {}, verdictMark(verdict)),
          element("td", { textContent: branch }),
        ),
      );
    }
    const left = rows.length - body.rows.length;
    byId("more-runs").hidden = left <= 0;
    byId("more-runs").textContent = `Show ${Math.min(left, RUNS_AT_ONCE)} more of ${left}`;
    return body.rows[from];
  }
  byId("more-runs").addEventListener("click", () => add()?.querySelector("a").focus());
  add();
}

function startCommit() {
  const { cases, us, changes, verdicts, words } = data;
  const columns = [
    ...nameColumns(cases),
    makeColumn("time", us.map(timeText), us),
    makeColumn("change", changes.map(changeText), changes),
    makeColumn("verdict", verdicts.map((code) => words[code])),
  ];
  const table = new SiteTable(cases, columns, () => undefined);
  startTable(table, "-change", [
    ["-change", "slower than before"], ["change", "faster than before"], ["-time", "longest time"], ["time", "shortest time"],
    ["workload", "workload"], ["backend", "backend"], ["verdict", "verdict"],
  ]);
}

/** Goes to the section that '#view=...' names, and opens what is folded in it. */
function visitView() {
  const section = document.getElementById(readState().view ?? "");
  if (section?.localName !== "section") return;
  for (const folded of section.querySelectorAll("details")) folded.open = true;
  section.scrollIntoView();
  section.focus({ preventScroll: true });
}

function startPage() {
  for (const scripted of document.querySelectorAll(".scripted")) scripted.hidden = false;
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((each) => (each.open = true)));
  ({ index: startIndex, case: startCase, commit: startCommit })[document.body.dataset.page]();
  addEventListener("hashchange", visitView);
  visitView();
  document.documentElement.dataset.drawn = "site";
}

try {
  startPage();
} catch (error) {
  byId("trouble").hidden = false;
  byId("trouble").textContent = `Part of this page cannot be shown: ${error.message}. The site's files must lie together as they were written.`;
}
