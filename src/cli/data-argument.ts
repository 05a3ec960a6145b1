/** What is given on the command line or on stdin: data that is published or sent, and secrets. */
import { BusbarError } from '../errors.ts'
import { limits } from '../event.ts'

/** Most JSON that arrives broken was whole before the shell took its quotes. */
export function quotingError(error: unknown): unknown {
  if (!(error instanceof BusbarError) || !error.details.isText) return error
  const problem = `${error.details.problem}. In a shell, put it between single quotes, as in '{"total":42}'`
  return BusbarError.of('DATA_UNSERIALISABLE', { problem, isText: true }, error)
}

/** `-` is stdin: what is typed as a word others can see in the list of processes. */
export const secretWord = async (given: string | undefined, stdin: AsyncIterable<Uint8Array>) =>
  given === '-' ? await readStdin(stdin) : given

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
