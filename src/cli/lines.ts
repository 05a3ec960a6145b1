/**
 * Lines of a stream of bytes, of any size in bounded memory: a line over the limit is passed over without being kept.
 * Bytes that are not UTF-8 are a problem of their line, never replaced. Blank lines are counted and left out.
 */
export type Line = { number: number; bytes: number } & ({ text: string } | { problem: string })

const newline = 10
const utf8 = new TextDecoder('utf-8', { fatal: true })

/**
 * The lines of each chunk together, so that a long file does not cost a promise per line. Ends early, and without
 * waiting for a source that has nothing to say, when the signal is aborted.
 */
export async function* readLines(
  source: AsyncIterable<Uint8Array>,
  { maxBytes, signal }: { maxBytes: number; signal: AbortSignal },
): AsyncGenerator<Line[]> {
  const collector = createCollector(maxBytes)
  const chunks = source[Symbol.asyncIterator]()
  const aborted = new Promise<'aborted'>((resolve) => {
    signal.addEventListener('abort', () => resolve('aborted'), { once: true })
  })
  for (;;) {
    const read = signal.aborted ? 'aborted' : await Promise.race([chunks.next(), aborted])
    if (read === 'aborted') return
    if (read.done) break
    yield collector.linesOf(read.value)
  }
  yield collector.rest()
}

function createCollector(maxBytes: number) {
  let number = 0
  let bytes = 0
  let parts: Uint8Array[] = []

  function add(part: Uint8Array): void {
    bytes += part.length
    if (bytes > maxBytes) parts = []
    else if (part.length > 0) parts.push(part)
  }

  function end(): Line[] {
    number += 1
    const line = decode({ number, bytes }, parts, maxBytes)
    bytes = 0
    parts = []
    return 'text' in line && line.text.trim() === '' ? [] : [line]
  }

  return {
    linesOf(chunk: Uint8Array): Line[] {
      const lines: Line[] = []
      let from = 0
      for (let to = chunk.indexOf(newline); to >= 0; to = chunk.indexOf(newline, from)) {
        add(chunk.subarray(from, to))
        lines.push(...end())
        from = to + 1
      }
      add(chunk.subarray(from))
      return lines
    },
    rest: (): Line[] => (bytes > 0 ? end() : []),
  }
}

function decode(place: { number: number; bytes: number }, parts: readonly Uint8Array[], maxBytes: number): Line {
  if (place.bytes > maxBytes) return { ...place, problem: `has ${place.bytes} bytes; the limit is ${maxBytes}` }
  try {
    // The decoder takes a byte order mark away by itself.
    return { ...place, text: utf8.decode(parts.length === 1 ? parts[0] : Buffer.concat(parts)) }
  } catch {
    return { ...place, problem: 'is not UTF-8' }
  }
}
