/**
 * The Redis wire format, as far as a proxy needs it: where a frame ends, what a command says, what a reply means.
 *
 * Frames are passed on as the bytes they came in, so nothing is encoded here.
 */

/** A reply in the shapes of RESP2, whichever protocol it came in: maps are flat arrays, doubles strings, booleans 0 and 1. */
export type Reply = string | number | null | Error | Reply[]

const lineEnd = '\r\n'
const typeAt = (bytes: Buffer, at: number) => String.fromCharCode(bytes[at]!)
const numberAt = (bytes: Buffer, at: number, end: number) => Number(bytes.toString('latin1', at, end))

/** How many further elements belong to an element of this type; null means it is no aggregate. */
function elementsOf(type: string, length: number): number | null {
  if ('*~>'.includes(type)) return Math.max(0, length) // -1 is RESP2's null array
  if (type === '%') return 2 * length
  if (type === '|') return 2 * length + 1 // an attribute stands before the reply it belongs to
  return null
}

export const isPush = (frame: Buffer) => typeAt(frame, 0) === '>'

/**
 * Cuts a stream of bytes into whole frames. Give it chunks as they come; it returns the frames they complete.
 *
 * It remembers how far it has looked and how many elements are missing, so a large reply in many chunks is looked at once.
 */
export function createSplitter(): (chunk: Buffer) => Buffer[] {
  let chunks: Buffer[] = []
  let held = 0
  let wanted = 1 // no frame can be complete with fewer bytes
  let position = 0
  let missing = 1

  return (chunk) => {
    chunks.push(chunk)
    held += chunk.length
    if (held < wanted) return []

    const bytes = chunks.length === 1 ? chunk : Buffer.concat(chunks)
    const frames: Buffer[] = []
    let start = 0
    for (;;) {
      const element = elementAt(bytes, position)
      if (element.kind === 'partial') {
        wanted = element.wanted - start
        break
      }
      position = element.end
      missing += element.elements - 1
      if (missing > 0) continue
      frames.push(bytes.subarray(start, position))
      start = position
      missing = 1
    }
    held = bytes.length - start
    chunks = held > 0 ? [bytes.subarray(start)] : []
    position -= start
    return frames
  }
}

type Element = { kind: 'whole'; end: number; elements: number } | { kind: 'partial'; wanted: number }

/** The element that begins at `at`, without those it contains. */
function elementAt(bytes: Buffer, at: number): Element {
  if (at < bytes.length && !'+-:_#,($=!*~>%|'.includes(typeAt(bytes, at))) {
    throw new Error(`Not a RESP frame: ${JSON.stringify(bytes.toString('latin1', at, at + 40))}`)
  }
  const endOfLine = bytes.indexOf(lineEnd, at, 'latin1')
  if (endOfLine === -1) return { kind: 'partial', wanted: bytes.length + 1 }
  const afterLine = endOfLine + lineEnd.length
  const type = typeAt(bytes, at)
  const length = numberAt(bytes, at + 1, endOfLine)
  const elements = elementsOf(type, length) ?? 0
  if (!'$=!'.includes(type) || length < 0) return { kind: 'whole', end: afterLine, elements }

  const end = afterLine + length + lineEnd.length
  return end > bytes.length ? { kind: 'partial', wanted: end } : { kind: 'whole', end, elements }
}

/** The words of a command. Clients send nothing but arrays of bulk strings. */
export function wordsOf(frame: Buffer): Buffer[] {
  const words: Buffer[] = []
  let at = frame.indexOf(lineEnd) + lineEnd.length
  while (at < frame.length) {
    const endOfLine = frame.indexOf(lineEnd, at)
    const length = numberAt(frame, at + 1, endOfLine)
    const start = endOfLine + lineEnd.length
    words.push(frame.subarray(start, start + length))
    at = start + length + lineEnd.length
  }
  return words
}

export const decodeReply = (frame: Buffer): Reply => readReply(frame, { at: 0 })

function readReply(frame: Buffer, cursor: { at: number }): Reply {
  const type = typeAt(frame, cursor.at)
  const endOfLine = frame.indexOf(lineEnd, cursor.at)
  const line = frame.toString('utf8', cursor.at + 1, endOfLine)
  cursor.at = endOfLine + lineEnd.length

  if (type === '_' || line === '-1') return type === ':' ? -1 : null
  const elements = elementsOf(type, Number(line))
  if (elements !== null) {
    const values = Array.from({ length: elements }, () => readReply(frame, cursor))
    return type === '|' ? values.at(-1)! : values
  }
  if ('$=!'.includes(type)) return readText(frame, cursor, type, Number(line))
  if (type === ':') return Number(line)
  if (type === '#') return line === 't' ? 1 : 0
  return type === '-' ? new Error(line) : line
}

function readText(frame: Buffer, cursor: { at: number }, type: string, length: number): Reply {
  const text = frame.toString('utf8', cursor.at, cursor.at + length)
  cursor.at += length + lineEnd.length
  if (type === '!') return new Error(text)
  return type === '=' ? text.slice(4) : text // a verbatim string begins with its format, "txt:"
}
