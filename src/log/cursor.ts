/**
 * A position in the whole log: one seq per partition, everything up to and including it has been passed.
 *
 * As text it is base64url of varints: the highest seq, then for each partition 0 if it is at its very beginning, else
 * its distance below the highest plus one; without partitions it means that seq in all of them. Partitions that grow
 * together are seconds apart, so 16 of them take about 100 characters instead of 270. Two check bytes at the end tell a
 * cursor from a typing error: nearly every short word is base64url of some varints.
 */
import { BusbarError, shown } from '../errors.ts'
import { crc32OfBytes } from './partition.ts'

export type Cursor = readonly number[]

export function writeCursor(cursor: Cursor): string {
  const highest = Math.max(0, ...cursor)
  const bytes: number[] = []
  pushVarint(bytes, highest)
  for (const seq of cursor) pushVarint(bytes, seq === 0 ? 0 : highest - seq + 1)
  return withCheck(bytes)
}

/** The same seq in every partition, however many there are. */
export function writeCursorAt(seq: number): string {
  const bytes: number[] = []
  pushVarint(bytes, seq)
  return withCheck(bytes)
}

const checkOf = (bytes: Uint8Array): number => crc32OfBytes(bytes) & 0xffff

function withCheck(bytes: number[]): string {
  const check = checkOf(Uint8Array.from(bytes))
  return Buffer.from([...bytes, check >> 8, check & 0xff]).toString('base64url')
}

/** Undefined for what was never written as a cursor. */
function withoutCheck(bytes: Buffer): Uint8Array | undefined {
  if (bytes.length < 3) return undefined
  const rest = bytes.subarray(0, -2)
  return checkOf(rest) === bytes.readUInt16BE(rest.length) ? rest : undefined
}

/** The last seq before a time: seq is the server's clock in µs. */
export function seqBefore(time: number | Date): number {
  const ms = time instanceof Date ? time.getTime() : time
  if (typeof ms !== 'number' || !(ms >= 0 && ms <= 8.64e15))
    throw BusbarError.of('CURSOR_INVALID', { value: shown(time), problem: 'is not a time' })
  return Math.min(Number.MAX_SAFE_INTEGER, Math.max(0, Math.floor(ms) * 1000 - 1))
}

/** How many partitions the log of a cursor has. */
export const partitionsIn = (text: string): number => (numbersIn(text)?.length ?? 1) - 1

function numbersIn(text: string): number[] | undefined {
  const bytes = withoutCheck(Buffer.from(text, 'base64url'))
  return bytes && readVarints(bytes)
}

export function readCursor(text: string, partitions: number): number[] {
  const invalid = (problem: string) => BusbarError.of('CURSOR_INVALID', { value: shown(text), problem })
  if (text.length > 16 + partitions * 12 || !/^[A-Za-z0-9_-]+$/.test(text)) throw invalid('is not a cursor')
  const numbers = numbersIn(text)
  if (!numbers) throw invalid('is not a cursor')
  const [highest, ...below] = numbers
  if (below.length === 0) return Array<number>(partitions).fill(highest!)
  if (below.length !== partitions)
    throw invalid(`is of a log with ${below.length} partitions, this one has ${partitions}`)
  const cursor = below.map((distance) => (distance === 0 ? 0 : highest! - distance + 1))
  if (cursor.some((seq) => seq < 0)) throw invalid('is not a cursor')
  return cursor
}

function pushVarint(bytes: number[], value: number): void {
  let rest = value
  while (rest >= 128) {
    bytes.push((rest % 128) | 128)
    rest = Math.floor(rest / 128)
  }
  bytes.push(rest)
}

function readVarints(bytes: Uint8Array): number[] | undefined {
  const numbers: number[] = []
  let value = 0
  let scale = 1
  for (const byte of bytes) {
    value += (byte & 127) * scale
    if (!Number.isSafeInteger(value)) return undefined
    scale *= 128
    if (byte < 128) {
      numbers.push(value)
      value = 0
      scale = 1
    }
  }
  return scale === 1 && numbers.length > 0 ? numbers : undefined
}
