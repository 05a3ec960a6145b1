/** Data that is given on the command line or on stdin, for commands that publish or send it. */
import { BusbarError } from '../errors.ts'
import { limits } from '../event.ts'

/** Most JSON that arrives broken was whole before the shell took its quotes. */
export function quotingError(error: unknown): unknown {
  if (!(error instanceof BusbarError) || !error.details.isText) return error
  const problem = `${error.details.problem}. In a shell, put it between single quotes, as in '{"total":42}'`
  return BusbarError.of('DATA_UNSERIALISABLE', { problem, isText: true }, error)
}

/** White space around the JSON, such as echo's line end, is not part of it. */
export async function readStdin(stdin: AsyncIterable<Uint8Array>): Promise<string> {
  const parts: Uint8Array[] = []
  let bytes = 0
  for await (const part of stdin) {
    bytes += part.length
    if (bytes > 2 * limits.dataBytes) throw BusbarError.of('EVENT_TOO_LARGE', { bytes, maxBytes: limits.dataBytes })
    parts.push(part)
  }
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(Buffer.concat(parts)).trim()
  } catch (error) {
    throw BusbarError.of('DATA_UNSERIALISABLE', { problem: 'it is not UTF-8', isText: true }, error)
  }
}
