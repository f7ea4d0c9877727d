"use strict";
// Times in the viewer's zone, charts, the slider over batches, and pages that stay current. Pages work without it.
(() => {
  const EVERY_MS = 5000;
  const plots = new Map(); // by title: what draws the chart
  const is_live = () => !["batch", "at", "before", "query"].some((name) => new URL(location.href).searchParams.has(name));
  const zone = new Intl.DateTimeFormat(undefined, { dateStyle: "short", timeStyle: "medium" });
  const zone_name = Intl.DateTimeFormat().resolvedOptions().timeZone;

  function add_local_times(place) {
    for (const time of place.querySelectorAll("time[datetime]")) {
      const moment = new Date(time.dateTime);
      if (moment.getTimezoneOffset() === 0 || time.nextElementSibling?.className === "local") continue;
      const local = document.createElement("span");
      local.className = "local";
      local.textContent = ` ${zone.format(moment)} ${zone_name}`;
      time.after(local);
    }
  }

  function color(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  function options(chart, width, batches, found) {
    const axis = { stroke: color("--text"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line") } };
    const lines = Object.keys(chart.lines).map((label, at) => ({
      label, stroke: color(`--line-${at % 6}`), width: 2, spanGaps: true, points: { size: 5 },
    }));
    const batch = { label: found.label ?? "batch", value: (_plot, _time, _series, at) => (at === null ? "" : batches[at]) };
    const scales = { x: { time: found.is_time ?? true } };
    return { title: chart.title, width, height: 220, scales, series: [batch, ...lines], axes: [axis, { ...axis, size: 70 }] };
  }

  async function series(address) {
    const answer = await fetch(address);
    return answer.ok ? answer.json() : null;
  }

  async function draw() {
    const place = document.getElementById("drawn");
    if (place === null) return;
    const found = place.dataset.chart ? JSON.parse(place.dataset.chart) : await series(place.dataset.series);
    if (found === null) return;
    for (const chart of found.charts) {
      const lines = Object.keys(chart.lines).join();
      const data = [found.time, ...Object.values(chart.lines)];
      const known = plots.get(chart.title);
      if (known !== undefined && known.lines === lines && place.contains(known.plot.root)) {
        known.batches.splice(0, Infinity, ...found.batch);
        known.plot.setData(data);
        continue;
      }
      known?.plot.destroy();
      const batches = [...found.batch];
      const width = Math.min(600, Math.max(280, place.clientWidth));
      const plot = new uPlot(options(chart, width, batches, found), data, place);
      plots.set(chart.title, { plot, lines, batches });
    }
  }

  function redraw() {
    for (const { plot } of plots.values()) plot.destroy();
    plots.clear();
    draw();
  }

  async function show(target) {
    const answer = await fetch(target);
    if (!answer.ok || !answer.headers.get("content-type").startsWith("text/html")) return false;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const [was, now] = [document.getElementById("main"), page.getElementById("main")];
    const scrolled = [...was.querySelectorAll(".wide")].map((each) => each.scrollLeft);
    const drawn = was.querySelector("#drawn");
    const fresh = now.querySelector("#drawn");
    if (drawn !== null && fresh !== null) {
      Object.assign(drawn.dataset, fresh.dataset);
      fresh.replaceWith(drawn);
    }
    was.replaceWith(document.adoptNode(now));
    document.title = page.title;
    now.querySelectorAll(".wide").forEach((each, at) => { each.scrollLeft = scrolled[at] ?? 0; });
    prepare(now);
    return true;
  }

  function prepare(place) {
    add_local_times(place);
    const slider = place.querySelector(".slider");
    if (slider !== null) {
      const batch = slider.form.elements.batch;
      slider.hidden = false;
      slider.addEventListener("input", () => { batch.value = slider.value; });
      slider.addEventListener("change", async () => {
        const target = new URL(location.pathname, location.href);
        target.search = new URLSearchParams(new FormData(slider.form)).toString();
        history.replaceState(null, "", target);
        if (!(await show(target))) location.reload();
        document.querySelector(".slider")?.focus();
      });
    }
    const text = place.querySelector("#query");
    if (text !== null) complete(text);
    draw();
  }

  function complete(text) {
    const place = document.getElementById("completions");
    const known = [...new Set([...document.querySelectorAll("#names code")].map((each) => each.textContent))];
    text.addEventListener("input", () => {
      const begun = text.value.slice(0, text.selectionStart).match(/\w+$/)?.[0] ?? "";
      const found = begun === "" ? [] : known.filter((name) => name.startsWith(begun) && name !== begun).slice(0, 8);
      place.replaceChildren(...found.map((name) => completion(text, begun, name)));
      place.hidden = found.length === 0;
    });
  }

  function completion(text, begun, name) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = name;
    button.addEventListener("click", () => {
      text.setRangeText(name.slice(begun.length), text.selectionStart, text.selectionStart, "end");
      document.getElementById("completions").hidden = true;
      text.focus();
    });
    const item = document.createElement("li");
    item.append(button);
    return item;
  }

  async function refresh() {
    const is_used = document.getElementById("main").contains(document.activeElement) || !getSelection().isCollapsed;
    let goes_on = true;
    if (is_live() && !document.hidden && !is_used) goes_on = await show(location.href).catch(() => true);
    if (goes_on) setTimeout(refresh, EVERY_MS); // a login that has ended is not asked for again and again
  }

  prepare(document);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  setTimeout(refresh, EVERY_MS);
})();
