"use strict";
// Text of a model's reaches the page only here, as text nodes.
const DATA = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);

function make(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
  for (const child of children) if (child !== null && child !== undefined) node.append(child);
  return node;
}

// Control characters, direction marks and lone surrogates are shown by name: they must neither act nor hide.
const HIDDEN = /[\p{Cc}\p{Cf}\p{Cs}]/u;
const PIECES = /<\/?(?:think|answer)>/g;

function putText(node, text, needle) {
  let plain = "";
  const flush = () => { if (plain) { putMarked(node, plain, needle); plain = ""; } };
  if (!HIDDEN.test(text.replace(/[\n\t]/g, ""))) { putMarked(node, text, needle); return node; }
  for (const character of text) {
    if (character === "\n" || character === "\t" || !HIDDEN.test(character)) { plain += character; continue; }
    flush();
    const code = character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
    node.append(make("span", { class: "control" }, "‹U+" + code + "›"));
  }
  flush();
  return node;
}

function putMarked(node, text, needle) {
  if (!needle) { node.append(text); return; }
  const low = text.toLowerCase();
  let from = 0;
  // Lower case may be longer than the text it came from: then nothing is marked.
  for (let at = low.length === text.length ? low.indexOf(needle) : -1; at >= 0; at = low.indexOf(needle, from)) {
    node.append(text.slice(from, at), make("mark", {}, text.slice(at, at + needle.length)));
    from = at + needle.length;
  }
  node.append(text.slice(from));
}

// A completion with its think and answer parts marked. `opened`: the prompt ends inside a think part.
function completionNode(text, needle, opened) {
  const node = make("div", { class: "text completion", dir: "ltr" });
  let from = 0, part = opened ? "think" : "";
  const put = (end) => {
    if (end > from) putText(node.appendChild(make("span", part ? { class: part } : {})), text.slice(from, end), needle);
    from = end;
  };
  for (const match of text.matchAll(PIECES)) {
    const name = match[0].replace(/[<>/]/g, ""), closes = match[0][1] === "/";
    if (closes) { put(match.index + match[0].length); part = ""; } else { put(match.index); part = name; }
  }
  put(text.length);
  return node;
}

function number(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(2);
  return String(Number(value.toPrecision(4)));
}

function options(select, values, all) {
  select.append(make("option", { value: "" }, all));
  for (const [value, name] of values) select.append(make("option", { value }, name));
}
