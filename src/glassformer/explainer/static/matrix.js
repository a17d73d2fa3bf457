// A matrix to look at and to walk in: colours on a canvas, one living cell for the keyboard; or all its numbers.
//
// The picture is a canvas, so that 40 rows of 256 channels appear at once. Over it lies a grid whose only cell is
// the one that is chosen: arrows, Home, End and the page keys move it, and a screen reader hears each new cell.

import { brief, digits } from './numbers.js';
import { make } from './parts.js';
import { maximum, range } from './trace.js';
import { say } from './words.js';

const SEEN = { columns: 12, rows: 24 }; // what a table of numbers shows of a larger matrix at a time

let palette = null;

// The page's colours, as they are now: rgb where they are mixed, CSS where they are not.
export function readPalette() {
  const probe = document.body.appendChild(make('i'));
  const read = (name) => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  };
  const rgb = (name) => read(name).match(/[\d.]+/g).slice(0, 3).map(Number);
  palette = { plus: rgb('plus'), minus: rgb('minus'), zero: rgb('zero'), ink: read('ink'), line: read('line') };
  probe.remove();
}

function inside(size, at) {
  return Math.max(0, Math.min(size - 1, at));
}

// Where a key leads in a matrix, or null.
function moved(event, [r, c], nRows, nColumns) {
  const places = {
    ArrowUp: [r - 1, c],
    ArrowDown: [r + 1, c],
    ArrowLeft: [r, c - 1],
    ArrowRight: [r, c + 1],
    Home: [event.ctrlKey ? 0 : r, 0],
    End: [event.ctrlKey ? nRows : r, nColumns],
    PageUp: [r - 5, c],
    PageDown: [r + 5, c],
  };
  const to = places[event.key];
  return to ? [inside(nRows, to[0]), inside(nColumns, to[1])] : null;
}

// Move from the place `here` by keys, and take its number apart by Enter.
function steer(grid, spec, on, here, move) {
  grid.addEventListener('keydown', (event) => {
    const to = moved(event, here(), spec.rows.length, spec.columns.length);
    if (to) {
      move(to);
      on.hover(spec.address(...to), spec.value(...to));
    } else if (event.key === 'Enter' || event.key === ' ') on.deeper(spec.address(...here()));
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
}

function mix(value, most) {
  const share = Math.min(1, Math.abs(value) / most) ** 0.7;
  const to = value < 0 ? palette.minus : palette.plus;
  return palette.zero.map((from, i) => Math.round(from + (to[i] - from) * share));
}

// spec: {title, rows: [label], columns: [label], value(r, c), address(r, c), most?, isShare?, now?: row, upTo?: row,
//        rowLang, columnLang, marks?: column boundaries}; pin: address; on: {choose(address), deeper(address)}
export function matrix(spec, { depth, pin, on, small = false }) {
  const most = spec.most || largestSize(spec) || 1;
  const pinnedAt = pinned(spec, pin);
  const at = pinnedAt ?? [spec.now ?? 0, 0];
  const figure = make('figure', { className: `matrix ${small ? 'small' : ''}` });
  if (spec.title) figure.append(make('figcaption', spec.title, spec.tensor ? make('code', spec.tensor) : null));
  const hasNumbers = depth === 2 && !small;
  figure.append(hasNumbers ? numbers(spec, at, most, on) : heat(spec, at, most, on, small, pinnedAt !== null));
  return figure;
}

function largestSize({ rows, columns, value }) {
  const sizes = rows.flatMap((_, r) => columns.map((_, c) => Math.abs(value(r, c))));
  return maximum([0, ...sizes.filter(Number.isFinite)]);
}

// Where an address lies in the matrix; rows are searched by the address itself, so any order of axes will do.
function pinned(spec, pin) {
  const column = Number(/(\d+)\]$/.exec(pin)?.[1]);
  const row = spec.rows.findIndex((_, r) => column < spec.columns.length && spec.address(r, column) === pin);
  return row < 0 ? null : [row, column];
}

function gridProperties(spec, nRows, nColumns) {
  return { role: 'grid', 'aria-label': spec.title ?? spec.tensor, 'aria-rowcount': nRows, 'aria-colcount': nColumns };
}

function heat(spec, [row, column], most, on, small, isPinned) {
  const nRows = spec.rows.length;
  const nColumns = spec.columns.length;
  const isSquare = nColumns <= 64 && !spec.isStrip;
  const hasNames = isSquare && !small && nColumns <= 48 && spec.columns.some(Boolean);
  const canvas = make('canvas', { 'aria-hidden': 'true' });
  const line = make('div', { role: 'row' });
  const grid = make('div.grid', gridProperties(spec, nRows, nColumns), canvas, line);
  const rowName = (name, r) => {
    return make('span', { className: r === spec.now && 'now', lang: spec.rowLang, dir: 'auto', title: name }, name);
  };
  const columnName = (name) => make('span', { lang: spec.columnLang, title: name }, make('b', name));
  const names = !small && make('div.row-names', { 'aria-hidden': 'true' }, spec.rows.map(rowName));
  const heads = hasNames && make('div.column-names', { 'aria-hidden': 'true' }, spec.columns.map(columnName));
  const between = (low, high, size) => Math.max(low, Math.min(high, Math.round(size / nRows)));
  const tall = spec.tall ?? (isSquare ? between(13, 30, 420) : spec.isStrip ? 24 : between(13, 18, 300));
  const body = make('div.heat', {
    className: `${isSquare ? 'square' : 'wide'} ${small ? 'small' : ''} ${heads ? 'named' : ''}`,
    style: { '--rows': nRows, '--columns': nColumns, '--tall': `${tall}px` },
  }, heads, names, grid);

  let here = [row, column];
  const put = () => {
    const [r, c] = here;
    const value = spec.value(r, c);
    const next = make('div', {
      role: 'gridcell',
      tabindex: '0',
      className: `cell ${isPinned ? 'pinned' : ''}`,
      'aria-colindex': c + 1,
      'data-address': spec.address(r, c),
      'data-value': String(value),
      'data-row': r,
      'data-column': c,
      'aria-label': `${spec.rows[r]}, ${spec.columns[c] || c}: ${digits(value)}`,
      style: {
        left: `${(100 * c) / nColumns}%`,
        top: `${(100 * r) / nRows}%`,
        width: `${100 / nColumns}%`,
        height: `${100 / nRows}%`,
      },
    });
    line.setAttribute('aria-rowindex', r + 1);
    line.replaceChildren(next);
    return next;
  };
  put();
  steer(grid, spec, on, () => here, (to) => {
    here = to;
    put().focus();
  });
  const under = (event) => {
    const box = canvas.getBoundingClientRect();
    const r = Math.floor(((event.clientY - box.top) / box.height) * nRows);
    const c = Math.floor(((event.clientX - box.left) / box.width) * nColumns);
    return [inside(nRows, r), inside(nColumns, c)];
  };
  grid.addEventListener('click', (event) => {
    here = under(event);
    on.choose(spec.address(...here));
  });
  grid.addEventListener('pointermove', (event) => {
    const [r, c] = under(event);
    on.hover(spec.address(r, c), spec.value(r, c));
  });
  canvas.paint = () => paint(canvas, spec, most, small);
  return body;
}

function paint(canvas, spec, most, small) {
  const nRows = spec.rows.length;
  const nColumns = spec.columns.length;
  const ratio = Math.min(2, window.devicePixelRatio || 1);
  const width = Math.max(1, Math.round(canvas.clientWidth * ratio));
  const height = Math.max(1, Math.round(canvas.clientHeight * ratio));
  if (canvas.width !== width) canvas.width = width;
  if (canvas.height !== height) canvas.height = height;
  const context = canvas.getContext('2d');
  context.clearRect(0, 0, width, height);
  const [w, h] = [width / nColumns, height / nRows];
  const gap = !small && w > 8 * ratio && h > 8 * ratio ? ratio : 0;
  const glyphs = !small && w >= 13 * ratio && h >= 13 * ratio;
  context.font = `${Math.round(10 * ratio)}px system-ui, sans-serif`;
  context.textAlign = 'center';
  context.textBaseline = 'middle';
  if (!gap) pixelate(context, spec, most, width, height);
  for (let r = 0; gap && r < nRows; r++) {
    const isLater = spec.upTo !== undefined && r > spec.upTo;
    for (let c = 0; c < nColumns; c++) {
      const value = spec.value(r, c);
      const [x, y] = [Math.floor(c * w), Math.floor(r * h)];
      const [cw, ch] = [Math.max(1, Math.ceil((c + 1) * w) - x - gap), Math.max(1, Math.ceil((r + 1) * h) - y - gap)];
      context.globalAlpha = isLater ? 0.22 : 1;
      if (!Number.isFinite(value)) {
        hatch(context, x, y, cw, ch, ratio);
        continue;
      }
      const colour = mix(value, most);
      context.fillStyle = `rgb(${colour})`;
      context.fillRect(x, y, cw, ch);
      if (glyphs && !spec.isShare && Math.abs(value) > 0.04 * most) {
        const light = colour[0] * 0.299 + colour[1] * 0.587 + colour[2] * 0.114 > 140;
        context.fillStyle = light ? 'rgba(0,0,0,.62)' : 'rgba(255,255,255,.85)';
        context.fillText(value < 0 ? '−' : '+', x + cw / 2, y + ch / 2);
      }
    }
  }
  context.globalAlpha = 1;
  context.strokeStyle = palette.ink;
  context.lineWidth = ratio;
  for (const mark of spec.marks ?? []) {
    context.stroke(new Path2D(`M ${Math.round(mark * w)} 0 V ${height}`));
  }
  if (spec.now !== undefined && !small && nRows > 1) {
    context.lineWidth = 2 * ratio;
    const top = Math.floor(spec.now * h) + ratio / 2;
    context.strokeRect(ratio, top, width - 2 * ratio - gap, Math.ceil(h) - ratio - gap);
  }
}

// Cells too small for a gap: one pixel each, drawn large.
function pixelate(context, spec, most, width, height) {
  const [nRows, nColumns] = [spec.rows.length, spec.columns.length];
  const pixels = new ImageData(nColumns, nRows);
  for (let r = 0, at = 0; r < nRows; r++) {
    for (let c = 0; c < nColumns; c++, at += 4) {
      const value = spec.value(r, c);
      if (Number.isFinite(value)) pixels.data.set([...mix(value, most), r > (spec.upTo ?? r) ? 56 : 255], at);
    }
  }
  const tile = new OffscreenCanvas(nColumns, nRows);
  tile.getContext('2d').putImageData(pixels, 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(tile, 0, 0, width, height);
}

function hatch(context, x, y, width, height, ratio) {
  context.save();
  context.beginPath();
  context.rect(x, y, width, height);
  context.clip();
  context.strokeStyle = palette.line;
  context.lineWidth = ratio;
  for (let at = -height; at < width; at += 5 * ratio) {
    context.stroke(new Path2D(`M ${x + at} ${y + height} l ${height} ${-height}`));
  }
  context.restore();
}

// The same matrix as numbers, a part of it at a time where it is large.
function numbers(spec, [row, column], most, on) {
  const [nRows, nColumns] = [spec.rows.length, spec.columns.length];
  const holder = make('div.numbers');
  let start = [window0(row, nRows, SEEN.rows), window0(column, nColumns, SEEN.columns)];
  let here = [row, column];
  const fill = () => {
    const last = [Math.min(nRows, start[0] + SEEN.rows), Math.min(nColumns, start[1] + SEEN.columns)];
    const header = (role, index, lang, text) => {
      return make('span', { role, 'aria-colindex': index, lang, title: text }, text);
    };
    const cell = (r, c) => {
      const value = spec.value(r, c);
      const isHere = r === here[0] && c === here[1];
      return make('span.num', {
        role: 'gridcell',
        tabindex: isHere ? '0' : '-1',
        className: isHere && 'here',
        'aria-colindex': c + 2,
        'data-address': spec.address(r, c),
        'data-value': String(value),
        'data-at': `${r},${c}`,
        style: tint(value, most),
      }, brief(value));
    };
    const rows = range(last[0] - start[0]).map((n) => start[0] + n);
    const columns = range(last[1] - start[1]).map((n) => start[1] + n);
    const line = (r) => {
      const className = r === spec.now ? 'now' : r > (spec.upTo ?? r) && 'later';
      return make('div', { role: 'row', 'aria-rowindex': r + 2, className },
        header('rowheader', 1, spec.rowLang, spec.rows[r]), columns.map((c) => cell(r, c)));
    };
    const names = columns.map((c) => header('columnheader', c + 2, spec.columnLang, spec.columns[c] || `${c}`));
    const top = make('div', { role: 'row', 'aria-rowindex': 1 }, header('columnheader', 1, null, ''), names);
    const body = make('div.number-grid', gridProperties(spec, nRows + 1, nColumns + 1), top, rows.map(line));
    const showing = (axis, size, what) => make('span', say('showing', start[axis], last[axis] - 1, size, say(what)));
    const pager = make('p.pager',
      nRows > SEEN.rows && showing(0, nRows, 'rows'),
      nColumns > SEEN.columns && [
        turn('‹', -SEEN.columns, last),
        showing(1, nColumns, 'columns'),
        turn('›', SEEN.columns, last),
      ]);
    holder.replaceChildren(make('div.scroll', body), ...(pager.hasChildNodes() ? [pager] : []));
    steer(body, spec, on, () => here, (to) => {
      here = to;
      start = [into(start[0], here[0], SEEN.rows), into(start[1], here[1], SEEN.columns)];
      fill();
      holder.querySelector('.here').focus();
    });
  };
  const turn = (text, by, last) => make('button', {
    type: 'button',
    'aria-label': `${text} ${say('columns')}`,
    disabled: (by < 0 && start[1] === 0) || (by > 0 && last[1] === nColumns),
    onclick: () => {
      start = [start[0], Math.max(0, Math.min(nColumns - SEEN.columns, start[1] + by))];
      here = [here[0], start[1]];
      fill();
    },
  }, text);
  holder.addEventListener('click', (event) => {
    if (event.target.dataset.at) on.choose(event.target.dataset.address);
  });
  fill();
  return holder;
}

function window0(at, size, seen) {
  return Math.max(0, Math.min(size - seen, at - Math.floor(seen / 2)));
}

function into(start, at, seen) {
  return at < start ? at : at >= start + seen ? at - seen + 1 : start;
}

function tint(value, most) {
  if (!Number.isFinite(value)) return { color: 'var(--soft)' };
  const share = Math.round(Math.min(1, Math.abs(value) / most) * 45);
  return { background: `color-mix(in srgb, var(${value < 0 ? '--minus' : '--plus'}) ${share}%, transparent)` };
}
