/** The Redis wire format, as far as the proxy needs it: where a frame ends, and what a command or a flat reply says. */

const lineEnd = '\r\n'

/** Cuts a stream of bytes into whole frames. Give it chunks as they come; it answers the frames that they complete. */
export function createSplitter() {
  let held = Buffer.alloc(0)
  return (chunk) => {
    held = held.length === 0 ? chunk : Buffer.concat([held, chunk])
    const frames = []
    let start = 0
    for (let end = endOfFrame(held, 0); end !== -1; end = endOfFrame(held, start)) {
      frames.push(held.subarray(start, end))
      start = end
    }
    held = held.subarray(start)
    return frames
  }
}

/** -1 while it is not all there. */
function endOfFrame(bytes, start) {
  let at = start
  for (let missing = 1; missing > 0; missing -= 1) {
    const endOfLine = bytes.indexOf(lineEnd, at, 'latin1')
    if (endOfLine === -1) return -1
    const type = String.fromCharCode(bytes[at])
    const length = Number(bytes.toString('latin1', at + 1, endOfLine))
    at = endOfLine + 2
    if ('*~>'.includes(type)) missing += Math.max(0, length)
    else if ('%|'.includes(type)) missing += 2 * length
    else if ('$=!'.includes(type) && length >= 0) at += length + 2
    if (at > bytes.length) return -1
  }
  return at
}

/** The words of an array of strings. */
export function wordsOf(frame) {
  const words = []
  let at = frame.indexOf(lineEnd) + 2
  while (at < frame.length) {
    const endOfLine = frame.indexOf(lineEnd, at)
    const length = Number(frame.toString('latin1', at + 1, endOfLine))
    const start = endOfLine + 2
    words.push(frame.toString('utf8', start, start + length))
    at = start + length + 2
  }
  return words
}

export const isPush = (frame) => frame[0] === 0x3e

/** What a reply says: texts, numbers, null, lists; an error as an Error. */
export function readReply(frame) {
  let at = 0
  const read = () => {
    const endOfLine = frame.indexOf(lineEnd, at)
    const type = String.fromCharCode(frame[at])
    const line = frame.toString('utf8', at + 1, endOfLine)
    at = endOfLine + 2
    if (type === '_' || ('$*'.includes(type) && line === '-1')) return null
    if ('*~'.includes(type)) return Array.from({ length: Number(line) }, read)
    if (type === '$') {
      const text = frame.toString('utf8', at, at + Number(line))
      at += Number(line) + 2
      return text
    }
    if (type === '-') return new Error(line)
    return type === ':' ? Number(line) : line
  }
  return read()
}
