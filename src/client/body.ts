/** Bodies as bytes, never more of them than allowed: a signature is over exactly what came. */
import type { Readable } from 'node:stream'
import { BusbarError } from '../errors.ts'

export const tooLarge = (maxBytes: number): BusbarError => BusbarError.of('BODY_TOO_LARGE', { maxBytes })

export function checkLength(body: string | Uint8Array, maxBytes: number): void {
  if ((typeof body === 'string' ? Buffer.byteLength(body) : body.length) > maxBytes) throw tooLarge(maxBytes)
}

/**
 * BODY_TOO_LARGE as soon as it is; the rest is thrown away as it comes, so that the sender, still sending, can read the answer. Undefined
 * when the sender has gone. An iterator would destroy the stream, and the answer's connection with it.
 */
export function readStream(stream: Readable, maxBytes: number): Promise<Buffer | undefined> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = []
    let bytes = 0
    stream.on('data', (chunk: Buffer) => {
      bytes += chunk.length
      if (bytes <= maxBytes) chunks.push(chunk)
      else {
        chunks.length = 0
        reject(tooLarge(maxBytes))
      }
    })
    stream.once('end', () => resolve(Buffer.concat(chunks)))
    stream.once('error', () => resolve(undefined))
    stream.once('close', () => resolve(undefined))
  })
}
