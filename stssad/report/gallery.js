// The pool's images, ranked, with a threshold that moves. Used by the report, which holds its data,
// and by the studio, which fetches it. Names are set as text, never as markup.
"use strict"
const Gallery = (() => {
  const COLOURS = [[20, 11, 53], [101, 21, 110], [187, 55, 84], [249, 142, 9], [252, 255, 164]]
  const STATUSES = { flagged: "Flagged", borderline: "To check", unflagged: "Not flagged" }
  const LABELS = { good: "Labeled good", defect: "Labeled defect", unsure: "Labeled unsure" }
  const el = (tag, attributes = {}, ...children) => {
    const element = document.createElement(tag)
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "class") element.className = value
      else if (name.startsWith("on")) element[name] = value
      else if (name in element && name !== "list") element[name] = value
      else element.setAttribute(name, value)
    }
    element.append(...children)
    return element
  }

  // A map, a byte for each patch, over its image: transparent where nothing is anomalous.
  const drawMap = (canvas, text, side) => {
    const bytes = Uint8Array.from(atob(text), c => c.charCodeAt(0))
    const small = document.createElement("canvas")
    small.width = small.height = side
    const context = small.getContext("2d"), pixels = context.createImageData(side, side)
    bytes.forEach((value, i) => {
      const position = value / 255 * (COLOURS.length - 1), below = Math.min(Math.floor(position), COLOURS.length - 2)
      for (let c = 0; c < 3; c++)
        pixels.data[4 * i + c] = COLOURS[below][c] + (position - below) * (COLOURS[below + 1][c] - COLOURS[below][c])
      pixels.data[4 * i + 3] = 215 * Math.sqrt(value / 255)
    })
    context.putImageData(pixels, 0, 0)
    canvas.width = canvas.height = 256
    const large = canvas.getContext("2d")
    large.imageSmoothingQuality = "high"
    large.drawImage(small, 0, 0, 256, 256)
  }

  // Where the square that the model saw lies in its file, as shares of the file's width and height: beyond
  // the file where that was padded. A square image is that square itself.
  const mapRectangle = (aspect, width, height) => {
    const side = { crop: Math.min(width, height), pad: Math.max(width, height) }[aspect]
    const [w, h] = side ? [side / width, side / height] : [1, 1]
    return { left: (1 - w) / 2, top: (1 - h) / 2, width: w, height: h }
  }

  // A large image with its map over it; the small image where the file can't be shown.
  const largeImage = (item, data) => {
    const image = el("img", { alt: item.name, src: item.full || item.image })
    image.onerror = () => { image.onerror = null; image.src = item.image }
    if (!item.map) return [image]
    const canvas = el("canvas", { class: "map" })
    drawMap(canvas, item.map, data.mapSide)
    image.onload = () => {
      const rectangle = mapRectangle(data.aspect, image.naturalWidth, image.naturalHeight)
      for (const [name, share] of Object.entries(rectangle)) canvas.style[name] = `${100 * share}%`
    }
    return [image, canvas]
  }

  const percent = share => `${Number((100 * share).toPrecision(2))} %`

  // The share of unseen normal images that score as high, as the model has it: counted below the tail's
  // start, and a tail that falls exponentially above it.
  const normalRate = (data, score) => {
    const n = data.normal.length, { start, scale, k } = data.tail
    if (scale === 0 || score <= start) return (1 + data.normal.filter(v => v >= score).length) / (1 + n)
    return (k + 1) / (n + 1) * (1 + (score - start) / (scale * k)) ** -k
  }
  const short = x => Math.abs(x) >= 1000 ? Math.round(x).toLocaleString("en") : Number(x.toPrecision(4)).toString()

  function build(root, data, hooks = {}) {
    const items = [...data.items].sort((a, b) => b.score - a.score)
    items.forEach((item, k) => { item.rank = k + 1 })
    const toAxis = score => data.floor === null ? score : Math.log10(Math.max(score - data.floor, 1e-9))
    const toScore = x => data.floor === null ? x : data.floor + 10 ** x
    const all = [...items.map(i => i.score), ...data.normal].map(toAxis)
    const low = Math.min(...all), high = Math.max(...all), margin = (high - low) * .03 || 1
    const state = { threshold: data.threshold, filter: "all", group: null }
    // What a person has said outranks the score: nobody is asked to check it again.
    const status = item => item.score > state.threshold ? "flagged"
      : item.score >= Math.min(data.border, state.threshold) && !item.label ? "borderline" : "unflagged"

    // Histogram and slider.
    const N = 40, from = low - margin, to = high + margin
    const bars = values => {
      const counts = new Array(N).fill(0)
      values.forEach(v => { counts[Math.min(N - 1, Math.floor((toAxis(v) - from) / (to - from) * N))]++ })
      return counts.map(c => c / Math.max(1, values.length))
    }
    const heights = [bars(data.normal), bars(items.map(i => i.score))], top = Math.max(...heights.flat())
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg")
    svg.setAttribute("viewBox", "0 0 400 120")
    svg.setAttribute("preserveAspectRatio", "none")
    svg.setAttribute("role", "img")
    svg.setAttribute("aria-label", "Histogram of the scores of unseen normal images and of the unlabeled pool")
    const shape = (tag, attributes) => {
      const element = document.createElementNS("http://www.w3.org/2000/svg", tag)
      for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value)
      svg.append(element)
      return element
    }
    heights.forEach((row, k) => row.forEach((share, i) => share && shape("rect", {
      class: `bar b${k}`, x: 400 * i / N, width: 400 / N - .6, y: 118 - 112 * share / top, height: 112 * share / top,
    })))
    const line = shape("line", { class: "threshold", y1: 0, y2: 120 })
    const ticks = el("div", { class: "ticks" }), mark = el("span", { class: "mark" })
    for (let i = 0; i <= 4; i++) {
      const tick = el("span", {}, short(toScore(from + (to - from) * i / 4)))
      tick.style.left = `${25 * i}%`
      ticks.append(tick)
    }
    const slider = el("input", { type: "range", id: "threshold", min: "0", max: "2000", step: "1" })
    slider.setAttribute("aria-label", "Threshold")
    const countsLine = el("p", { id: "counts", role: "status" })
    const toSlider = t => Math.round(2000 * (toAxis(t) - from) / (to - from))

    const csv = () => {
      const quote = text => '"' + text.replaceAll('"', '""') + '"'
      const rows = items.map(i => [quote(i.name), i.score, i.score > state.threshold ? 1 : 0, i.p,
        i.group < 0 ? "" : quote(groupName(i.group))].join(","))
      return "image_path,pred_score,pred_label,p_value,group\n" + rows.join("\n") + "\n"
    }
    const download = el("a", { class: "button", href: "#", id: "download", download: "scores.csv" }, "Download CSV at this threshold")
    download.onclick = () => { download.href = URL.createObjectURL(new Blob([csv()], { type: "text/csv" })) }
    const reset = el("button", { type: "button", id: "reset" }, "Back to the fit's threshold")
    const countAbove = t => items.filter(i => i.score > t).length
    const choice = (text, t) => {
      const button = el("button", { type: "button", onclick: () => move(t) }, `${text}: ${countAbove(t)}`)
      button.threshold = t
      return button
    }
    const choices = [
      ...Object.entries(data.sensitivities || {}).map(([name, t]) => choice(name, t)),
      ...(data.prices || []).map(([rate, t]) => choice(percent(rate), t)),
    ]
    const nLevels = Object.keys(data.sensitivities || {}).length
    const control = el("div", { class: "control" },
      el("figure", {}, el("div", { class: "plot" }, svg, mark), ticks, slider, el("figcaption", {}, el("span", { class: "key n" }), "unseen normal images ",
        el("span", { class: "key p" }), "unlabeled pool; anomaly score from left to right: images to the right of the line, the threshold, are flagged")),
      countsLine,
      el("p", { class: "buttons prices" }, "Flagged by sensitivity", ...choices.slice(0, nLevels),
        "by false alarm rate", ...choices.slice(nLevels)),
      el("p", { class: "buttons" }, download, reset))

    // Groups of anomalies.
    const names = { ...(data.groupNames || {}) }
    const groupName = k => names[k] || `group ${k + 1}`
    const groups = el("div", { class: "groups" })

    // Filters and cards.
    const filters = el("div", { class: "filters", role: "group" })
    filters.setAttribute("aria-label", "Show")
    const buttons = {}
    for (const name of ["all", ...Object.keys(STATUSES)]) {
      buttons[name] = el("button", { type: "button", onclick: () => { state.filter = name; state.group = null; update() } })
      buttons[name].dataset.filter = name
      filters.append(buttons[name])
    }
    const maps = el("input", { type: "checkbox", id: "maps" })
    if (data.mapSide) filters.append(el("label", { class: "toggle" }, maps, " Show anomaly maps"))
    const grid = el("div", { class: "gallery", id: "gallery" })
    const back = el("button", { type: "button", class: "back", onclick: () => { state.group = null; update() } })
    const dividers = Object.fromEntries(Object.entries(STATUSES).map(([name, title]) =>
      [name, el("h3", { class: "divider" }, title)]))
    const addMap = item => {
      if (!item.map || item.canvas) return
      item.canvas = el("canvas", { class: "map" })
      drawMap(item.canvas, item.map, data.mapSide)
      item.card.querySelector(".image").append(item.canvas)
    }
    const drawn = items.filter(item => item.image)  // the least anomalous of very many are only counted
    for (const item of drawn) {
      const image = el("img", { loading: "lazy", alt: item.name, src: item.image, width: 128, height: 128 })
      const tag = el("span", { class: "tag" })
      item.card = el("button", { type: "button", class: "card", onclick: () => open(item) },
        el("span", { class: "image" }, image),
        el("span", { class: "caption" }, el("strong", {}, `${item.rank}. ${item.name}`), tag))
      item.card.title = `score ${short(item.score)}; ${percent(item.p)} of normal images score at least as high`
      item.tag = tag
      item.card.onmouseenter = item.card.onfocus = () => addMap(item)
    }
    maps.onchange = () => {
      grid.classList.toggle("maps", maps.checked)
      if (maps.checked) drawn.forEach(addMap)
    }

    // One image, large.
    const dialog = el("dialog", { class: "large" })
    dialog.setAttribute("aria-label", "Image")
    let current = null
    const visible = () => drawn.filter(i => !i.card.hidden)
    const step = by => {
      const list = visible(), at = list.indexOf(current)
      if (list[at + by]) open(list[at + by])
    }
    function open(item) {
      current = item
      const frame = el("div", { class: "image" }, ...largeImage(item, data))
      const toggle = el("button", { type: "button", onclick: () => frame.classList.toggle("plain") }, "Map on / off")
      const close = el("button", { type: "button", onclick: () => dialog.close() }, "Close")
      dialog.replaceChildren(frame, el("div", { class: "facts" },
        el("h3", {}, `${item.rank}. ${item.name}`),
        el("p", {}, `Score ${short(item.score)} (threshold ${short(state.threshold)}). ` +
          `${percent(item.p)} of normal images score at least as high.` +
          (item.group >= 0 ? ` Group: ${groupName(item.group)}.` : "") +
          (item.label ? ` ${LABELS[item.label]}.` : "")),
        el("p", { class: "buttons" }, ...(item.map ? [toggle] : []),
          el("button", { type: "button", onclick: () => step(-1) }, "‹ Previous"),
          el("button", { type: "button", onclick: () => step(1) }, "Next ›"), close),
        ...(hooks.facts ? [hooks.facts(item)] : [])))
      if (!dialog.open) dialog.showModal()
    }
    dialog.onkeydown = event => {
      if (event.key === "ArrowLeft") step(-1)
      if (event.key === "ArrowRight") step(1)
      if (hooks.key) hooks.key(event, current)
    }
    dialog.onclick = event => { if (event.target === dialog) dialog.close() }

    function showGroups() {
      const anomalous = items.filter(i => i.label !== "good" && (i.label === "defect" || status(i) !== "unflagged"))
      const grouped = anomalous.filter(i => i.group >= 0)
      const numbers = [...new Set(grouped.map(i => i.group))].sort((a, b) => a - b)
      groups.replaceChildren()
      if (!anomalous.length) { groups.append(el("p", { class: "note" }, "No image is flagged.")); return }
      if (numbers.length === 1) groups.append(el("p", { class: "note" }, "They form one group."))
      const alone = anomalous.length - grouped.length
      if (alone) groups.append(el("p", { class: "note" }, `${alone} more ${alone === 1 ? "is" : "are"} in no group.`))
      for (const k of numbers) {
        const members = grouped.filter(i => i.group === k)
        const name = el("input", { value: groupName(k), maxLength: 60 })
        name.setAttribute("aria-label", `Name of group ${k + 1}`)
        name.onchange = () => { names[k] = name.value.trim(); if (hooks.renamed) hooks.renamed(k, names[k]); update() }
        const only = el("button", { type: "button", onclick: () => { state.group = k; state.filter = "all"; update(); grid.scrollIntoView() } },
          `Show ${members.length}`)
        groups.append(el("div", { class: "group" }, el("div", { class: "head" }, name, only),
          el("div", { class: "examples" }, ...members.slice(0, 6).map(i =>
            el("img", { src: i.image, alt: i.name, loading: "lazy", width: 72, height: 72 })))))
      }
    }

    let last = ""
    function update() {
      const counts = { flagged: 0, borderline: 0, unflagged: 0 }
      let visible = null
      for (const item of items) {
        const now = status(item)
        counts[now]++
        if (!item.card) continue
        const shown = `${now} ${item.label || ""}`
        if (item.card.dataset.shown !== shown) {
          item.card.dataset.shown = shown
          item.card.dataset.status = now
          item.card.dataset.label = item.label || ""
          item.tag.textContent = LABELS[item.label] || (now === "unflagged" ? "" : STATUSES[now])
        }
        visible = (state.filter === "all" || state.filter === now) && (state.group === null || item.group === state.group)
        if (item.card.hidden === visible) item.card.hidden = !visible
      }
      const division = `${counts.flagged} ${counts.borderline}`
      if (division !== last) {  // each status is a stretch of the ranking: only the dividers move
        last = division
        let at = 0
        const order = []
        for (const name of Object.keys(STATUSES)) {
          dividers[name].textContent = `${STATUSES[name]} (${counts[name]})`
          if (counts[name]) order.push([at, dividers[name]])
          else dividers[name].remove()
          at += counts[name]
        }
        if (!grid.childElementCount) grid.append(...drawn.map(i => i.card))
        for (const [k, divider] of order) if (items[k].card) items[k].card.before(divider)
      }
      for (const [name, divider] of Object.entries(dividers))
        divider.hidden = state.filter !== "all" && state.filter !== name
      for (const [name, button] of Object.entries(buttons)) {
        const n = name === "all" ? items.length : counts[name]
        button.textContent = `${STATUSES[name] || "All"} ${n}`
        button.setAttribute("aria-pressed", String(state.filter === name && state.group === null))
      }
      const headline = `${counts.flagged || "None"} of ${items.length} ${counts.flagged < 2 ? "is" : "are"} flagged` +
        (counts.borderline ? `, ${counts.borderline} more to check.` : ".")
      countsLine.textContent = `Threshold ${short(state.threshold)}: about ` +
        `${percent(normalRate(data, state.threshold))} of normal images score above it.`
      const x = 400 * (toAxis(state.threshold) - from) / (to - from)
      line.setAttribute("x1", x); line.setAttribute("x2", x)
      mark.style.left = `${Math.min(100, Math.max(0, x / 4))}%`
      mark.classList.toggle("left", x > 320)
      mark.textContent = `threshold ${short(state.threshold)}`
      for (const each of choices) each.setAttribute("aria-pressed", String(each.threshold === state.threshold))
      back.hidden = state.group === null
      back.textContent = state.group === null ? "" : `Showing ${groupName(state.group)}. Back to all images`
      reset.disabled = state.threshold === data.fitted
      showGroups()
      if (hooks.moved) hooks.moved(state.threshold, counts, headline)
    }
    const move = t => { state.threshold = t; slider.value = toSlider(t); update() }
    slider.oninput = () => { state.threshold = toScore(from + (to - from) * slider.value / 2000); update() }
    reset.onclick = () => move(data.fitted)
    root.replaceChildren(control, el("h2", {}, "Groups of anomalies"), groups, el("h2", {}, "All images, ranked"),
      el("p", { class: "note" }, "The most anomalous images come first, with rank and name. Open an image to see its score and the share of " +
        "normal images that score at least as high; hover over it to see its anomaly map." +
        (drawn.length < items.length ? ` The ${items.length - drawn.length} least anomalous are listed in scores.csv only.` : "")), filters, back, grid, dialog)
    move(data.threshold)
    return { items, state, move, update, open, status, dialog, csv }
  }
  return { build, el, drawMap, largeImage, mapRectangle, percent, short }
})()
