// Small things to build a page of. Text is always put in as text, so that `<script>` in a sentence is only letters.

import { digits } from './numbers.js';

const SVG = 'http://www.w3.org/2000/svg';

// Make an element: its tag, with classes after dots; perhaps properties; children (texts, elements, or nothing).
export function make(tag, ...rest) {
  return dressed((name) => document.createElement(name), tag, rest);
}

export function draw(tag, ...rest) {
  return dressed((name) => document.createElementNS(SVG, name), tag, rest);
}

function dressed(create, tag, rest) {
  const [name, ...classes] = tag.split('.');
  const element = create(name);
  element.classList.add(...classes);
  const isPlain = rest[0] && Object.getPrototypeOf(rest[0]) === Object.prototype;
  for (const [key, value] of Object.entries(isPlain ? rest.shift() : {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith('on')) element.addEventListener(key.slice(2), value);
    else if (key === 'style') Object.entries(value).forEach((pair) => element.style.setProperty(...pair));
    else if (key === 'className') element.classList.add(...value.split(' ').filter(Boolean));
    else element.setAttribute(key, value === true ? '' : String(value));
  }
  element.append(...rest.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// A number that knows its address and its full value.
export function number(value, address = '', text = digits(value), properties = {}) {
  return make('span.num', { 'data-address': address, 'data-value': String(value), ...properties }, text);
}

// A number to be chosen: it leads to its own arithmetic.
export function link(value, address, text = digits(value)) {
  const properties = { href: `#${address}`, 'data-address': address, 'data-value': String(value), title: address };
  return make('a.num', properties, text);
}

// Formula markup: _{below}, ^{above}.
export function formula(text) {
  const out = make('span.formula');
  for (const part of text.split(/([_^]\{[^}]*\}|\s*,\s{2,})/)) {
    if (/^[_^]\{/.test(part)) out.append(make(part[0] === '_' ? 'sub' : 'sup', {}, part.slice(2, -1)));
    else if (/^\s*,\s{2,}$/.test(part)) out.append(make('br'));
    else out.append(part);
  }
  return out;
}

// Signed bars below one another. rows: {label, value, address, note?, className?, lang?}
export function bars(rows, { full = 0, className = '', write = digits } = {}) {
  const most = full || Math.max(1e-12, ...rows.map((row) => (Number.isFinite(row.value) ? Math.abs(row.value) : 0)));
  const isSigned = rows.some((row) => row.value < 0);
  const bar = (row) => make('li', { className: row.className || '' },
    make('span.label', { lang: row.lang, dir: 'auto', title: row.label }, row.label),
    track(row.value / most),
    (/[()*]/.test(row.address) ? number : link)(row.value, row.address, write(row.value)),
    row.note && make('span.note', row.note));
  return make('ul.bars', { className: `${isSigned ? 'signed' : ''} ${className}` }, rows.map(bar));
}

export function track(share) {
  const length = Number.isFinite(share) ? Math.min(1, Math.abs(share)) : 0;
  const properties = { className: share < 0 ? 'minus' : '', style: { '--share': length.toFixed(4) } };
  return make('span.track', { 'aria-hidden': 'true' }, make('i.bar', properties));
}

// rows: {cells, className?}; the first cell names its row.
export function table(header, rows, className = '') {
  const cell = (content, n) => (n === 0 ? make('th', { scope: 'row' }, content) : make('td', content));
  const line = (row) => make('tr', { className: row.className || '' }, row.cells.map(cell));
  const names = header.map((name) => make('th', { scope: 'col' }, name));
  return make('div.scroll', { className, tabindex: '0', role: 'region', 'aria-label': header.join(', ') },
    make('table', make('thead', make('tr', names)), make('tbody', rows.map(line))));
}

export function figure(caption, ...content) {
  return make('figure', caption && make('figcaption', caption), content);
}

// Arcs from target words (below) to source words (above), as thick as the share.
// links: {from, to, share, isNow, address}
export function arcs(source, target, links, languages, onchoose) {
  const most = Math.max(source.length, target.length);
  const x = (n, list) => Math.round(((n + 0.5) / list.length) * 1000);
  const lines = links.map(({ from, to, share, isNow, address }) => draw('path.arc', {
    d: `M ${x(to, source)} 0 C ${x(to, source)} 60, ${x(from, target)} 40, ${x(from, target)} 100`,
    className: isNow ? 'now' : '',
    'stroke-width': (0.5 + 5 * share).toFixed(2),
    'stroke-opacity': (0.15 + 0.75 * share).toFixed(2),
    'data-address': address,
    'data-value': share,
  }));
  const above = source.map((word) => make('span', { lang: languages[0] }, word));
  const choose = (n) => ({ type: 'button', lang: languages[1], onclick: () => onchoose(n) });
  const below = target.map((word, n) => make('button', choose(n), word));
  return make('div.scroll', { tabindex: '0', role: 'region', 'aria-label': languages.join(' → ') },
    make('div.arcs', { style: { '--n': most } },
      make('div.arc-words.src', { style: { '--n': source.length } }, above),
      draw('svg', { viewBox: '0 0 1000 100', preserveAspectRatio: 'none', 'aria-hidden': 'true' }, lines),
      make('div.arc-words.tgt', { style: { '--n': target.length } }, below)));
}
