/**
 * Takes JSON text apart without reading it into values: each element or member is handed out as the text it is.
 *
 * An event's data must reach the log byte for byte, so it may not pass through JSON.parse and back. Nor may a body: a
 * few megabytes of brackets become half a gigabyte of arrays. This scanner checks the whole grammar (RFC 8259) in one
 * pass, keeps nothing but the stack of what is open, and throws NotJson at the first character that does not fit.
 */

export class NotJson extends Error {
  constructor(problem: string, at: number) {
    super(`${problem} at character ${at + 1}`)
  }
}

// Deeper than the largest data of an event can be: 256 KiB of brackets.
const maxDepth = 262_144

const code = (character: string): number => character.charCodeAt(0)
const quote = code('"')
const backslash = code('\\')
const comma = code(',')
const colon = code(':')
const openBrace = code('{')
const closeBrace = code('}')
const openBracket = code('[')
const closeBracket = code(']')
const space = code(' ')

/** Calls `visit` with the text of each element of an array. The text must hold the array and nothing else. */
export function forEachElement(text: string, visit: (raw: string) => void): void {
  let at = openContainer(text, openBracket)
  if (text.charCodeAt(at) === closeBracket) return expectEnd(text, at + 1)
  for (;;) {
    const end = skipValue(text, at)
    visit(text.slice(at, end))
    at = skipSpace(text, end)
    if (text.charCodeAt(at) === closeBracket) return expectEnd(text, at + 1)
    at = skipSpace(text, expect(text, at, comma))
  }
}

/** Calls `visit` with each member of an object: its name decoded, its value as the text it is. */
export function forEachMember(text: string, visit: (name: string, raw: string) => void): void {
  let at = openContainer(text, openBrace)
  if (text.charCodeAt(at) === closeBrace) return expectEnd(text, at + 1)
  for (;;) {
    const nameEnd = skipString(text, at)
    const name = decodeName(text.slice(at, nameEnd))
    at = skipColon(text, nameEnd)
    const end = skipValue(text, at)
    visit(name, text.slice(at, end))
    at = skipSpace(text, end)
    if (text.charCodeAt(at) === closeBrace) return expectEnd(text, at + 1)
    at = skipSpace(text, expect(text, at, comma))
  }
}

/** A third of the time of reading a small member was the parser's. */
const decodeName = (text: string): string => (text.includes('\\') ? JSON.parse(text) : text.slice(1, -1))

/** Throws NotJson unless the text is one value and nothing else. */
export function checkValue(text: string): void {
  expectEnd(text, skipValue(text, skipSpace(text, 0)))
}

/** What the text begins with decides what it can be. */
export function kindOfJson(text: string): 'object' | 'array' | 'other' {
  const first = text.charCodeAt(skipSpace(text, 0))
  if (first === openBrace) return 'object'
  return first === openBracket ? 'array' : 'other'
}

function openContainer(text: string, opening: number): number {
  return skipSpace(text, expect(text, skipSpace(text, 0), opening))
}

function expectEnd(text: string, at: number): void {
  const end = skipSpace(text, at)
  if (end < text.length) throw unexpected(text, end)
}

function expect(text: string, at: number, wanted: number): number {
  if (text.charCodeAt(at) !== wanted) throw unexpected(text, at)
  return at + 1
}

function unexpected(text: string, at: number): NotJson {
  return at < text.length
    ? new NotJson(`unexpected ${JSON.stringify(text[at])}`, at)
    : new NotJson('unexpected end', text.length)
}

/** Where the value that begins here ends. A loop instead of recursion: depth must not cost the call stack. */
function skipValue(text: string, start: number): number {
  const closers: number[] = []
  let at = start
  for (;;) {
    const first = text.charCodeAt(at)
    if (first === openBrace || first === openBracket) {
      if (closers.length === maxDepth) throw new NotJson(`nested over ${maxDepth} deep`, at)
      const closer = first === openBrace ? closeBrace : closeBracket
      at = skipSpace(text, at + 1)
      if (text.charCodeAt(at) === closer) at += 1
      else {
        closers.push(closer)
        if (closer === closeBrace) at = skipName(text, at)
        continue
      }
    } else at = first === quote ? skipString(text, at) : skipWord(text, at)

    at = skipClosers(text, at, closers)
    if (closers.length === 0) return at
    at = skipSpace(text, expect(text, at, comma))
    if (closers.at(-1) === closeBrace) at = skipName(text, at)
  }
}

/** After a complete value: passes everything that ends with it. */
function skipClosers(text: string, start: number, closers: number[]): number {
  let at = start
  while (closers.length > 0) {
    at = skipSpace(text, at)
    if (text.charCodeAt(at) !== closers.at(-1)) break
    closers.pop()
    at += 1
  }
  return at
}

const skipName = (text: string, at: number): number => skipColon(text, skipString(text, at))

const skipColon = (text: string, at: number): number => skipSpace(text, expect(text, skipSpace(text, at), colon))

function skipSpace(text: string, start: number): number {
  let at = start
  for (;;) {
    const c = text.charCodeAt(at)
    if (c !== space && c !== 10 && c !== 13 && c !== 9) return at
    at += 1
  }
}

const afterBackslash = /["\\/bfnrt]|u[0-9a-fA-F]{4}/y

function skipString(text: string, start: number): number {
  let at = expect(text, start, quote)
  for (;;) {
    const c = text.charCodeAt(at)
    if (c === quote) return at + 1
    if (c === backslash) at = skipPattern(text, at + 1, afterBackslash)
    // NaN, the end of the text, is not above either.
    else if (c >= space) at += 1
    else throw unexpected(text, at)
  }
}

const word = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null/y

const skipWord = (text: string, at: number): number => skipPattern(text, at, word)

function skipPattern(text: string, at: number, pattern: RegExp): number {
  pattern.lastIndex = at
  if (!pattern.test(text)) throw unexpected(text, at)
  return pattern.lastIndex
}
