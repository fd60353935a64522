"use strict";
(() => {
  const make = (tag, name, text) => {
    const made = document.createElement(tag);
    if (name) made.className = name;
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const button = (name, text) => Object.assign(make("button", name, text), { type: "button" });
  const lines = (text) => (text ? text.split("\n") : []);

  // Copy a command that is shown in full on one line. The clipboard may be refused to a local file: then select it.
  for (const pre of document.querySelectorAll("pre[data-copy]")) {
    const copy = button("copy", "Copy"), box = make("div", "copyable");
    copy.setAttribute("aria-label", "Copy this command");
    pre.replaceWith(box);
    box.append(pre, copy);
    copy.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(pre.textContent);
        copy.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(pre);
        copy.textContent = "Selected";
      }
      setTimeout(() => { copy.textContent = "Copy"; }, 2000);
    });
  }

  // Read out a figure's marks by pointer and arrow keys; show and hide its series.
  for (const figure of document.querySelectorAll("figure[data-points]")) {
    const all = lines(figure.dataset.points).map((line) => line.split("\t"));
    const series = lines(figure.dataset.series), hidden = new Set();
    const plot = figure.querySelector(".plot"), picture = figure.querySelector(".picture");
    const ring = make("span", "ring"), out = make("output", "readout");
    const hint = "Point at a mark, or focus the figure and use the arrow keys.";
    let at = -1;
    const shown = () => all.filter((p) => !hidden.has(p[4]));
    const show = (i) => {
      const points = shown();
      at = points.length && i >= 0 ? Math.min(i, points.length - 1) : -1;
      ring.hidden = at < 0;
      out.classList.toggle("reading", at >= 0);
      if (at < 0) { out.textContent = hint; return; }
      const [left, top, name, value, , to] = points[at];
      ring.style.left = left + "%";
      ring.style.top = top + "%";
      out.replaceChildren(make("b", "", name), " " + value + (to ? " (Enter: its row)" : ""));
    };
    const follow = () => {
      const row = at >= 0 && document.getElementById((shown()[at][5] || "#").slice(1));
      if (!row) return;
      row.closest("details")?.setAttribute("open", "");
      row.scrollIntoView({ block: "center" });
      (row.querySelector("a") || row).focus();
    };
    const nearest = (event) => {
      const box = picture.getBoundingClientRect();
      let best = -1, least = 24;
      shown().forEach(([left, top], i) => {
        const dx = box.left + (box.width * left) / 100 - event.clientX, dy = box.top + (box.height * top) / 100 - event.clientY;
        const far = Math.hypot(dx, dy);
        if (far < least) { least = far; best = i; }
      });
      if (best >= 0) show(best);
    };
    picture.append(ring);
    plot.after(out);
    plot.tabIndex = 0;
    plot.setAttribute("role", "group");
    plot.setAttribute("aria-label", `${figure.querySelector("h3")?.textContent || "Figure"}; arrow keys read out its marks`);
    plot.addEventListener("pointermove", nearest);
    plot.addEventListener("pointerdown", nearest);
    plot.addEventListener("focus", () => { if (at < 0 && plot.matches(":focus-visible")) show(0); });
    plot.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (event.ctrlKey || event.altKey || event.metaKey) return;
      if (step) show(Math.max(0, at + step));
      else if (event.key === "Home") show(0);
      else if (event.key === "End") show(all.length);
      else if (event.key === "Enter") follow();
      else if (event.key === "Escape") show(-1);
      else return;
      event.preventDefault();
    });
    show(-1);
    if (series.length < 2) continue;
    const choice = make("fieldset", "series");
    choice.append(make("legend", "", "Show"));
    series.forEach((name, k) => {
      const label = make("label"), box = Object.assign(make("input"), { type: "checkbox", checked: true });
      box.addEventListener("change", () => {
        hidden[box.checked ? "delete" : "add"](String(k));
        for (const part of picture.querySelectorAll("svg .s" + k)) part.style.display = box.checked ? "" : "none";
        show(-1);
      });
      label.append(box, name);
      choice.append(label);
    });
    plot.before(choice);
  }

  // Sort and filter long tables: by the first number in a cell (an interval's ends come later), times by seconds, words
  // in natural order ("arm 2" before "arm 10"); cells without a value always come last.
  const value = (text) => {
    const plain = text.replace(/,(?=\d{3})/g, "").replaceAll("−", "-");
    const time = plain.match(/^(\d+) min (\d+) s/);
    if (time) return 60 * Number(time[1]) + Number(time[2]);
    const [found] = plain.match(/any size|-?∞|-?\d+(\.\d+)?(e[+-]?\d+)?/i) ?? [];
    if (found === undefined) return NaN;
    return found === "-∞" ? -Infinity : /[a∞]/.test(found) ? Infinity : Number(found);
  };
  const words = new Intl.Collator("en", { numeric: true });
  const sorted = (rows, column, numeric, sign) => {
    const keyed = rows.map((row) => [row, row.cells[column].textContent.trim()]);
    if (numeric) for (const pair of keyed) pair[1] = value(pair[1]);
    const order = ([, x], [, y]) => (numeric
      ? Number.isNaN(x) - Number.isNaN(y) || (x < y ? -sign : x > y ? sign : 0)
      : (x === "–") - (y === "–") || sign * words.compare(x, y));
    return keyed.sort(order).map(([row]) => row);
  };
  for (const table of document.querySelectorAll("table.long")) {
    const body = table.tBodies[0], rows = [...body.rows];
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const press = button("sort", head.textContent), numeric = head.classList.contains("number");
      head.replaceChildren(press);
      press.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        body.append(...sorted(rows, column, numeric, down ? -1 : 1));
      });
    });
    if (rows.length < 16) continue;
    const label = make("label", "filter", "Filter "), field = Object.assign(make("input"), { type: "search" });
    field.setAttribute("aria-label", `Filter: ${table.caption?.textContent.trim() ?? ""}`);
    const left = make("output");
    label.append(field, left);
    table.closest(".scroll").before(label);
    field.addEventListener("input", () => {
      const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
      let kept = 0;
      for (const row of rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
        kept += !row.hidden;
      }
      left.textContent = words.length ? ` ${kept} of ${rows.length} rows` : "";
    });
  }

  // Folded parts are printed too.
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    for (const part of opened) part.open = true;
  });
  addEventListener("afterprint", () => { for (const part of opened) part.open = false; });
})();
