/**
 * An entry of a partition's stream: the events of one flush, at most 256.
 *
 * Its id is `<seq of its last event>-0`. It has two fields: the prevs of its events joined by spaces (empty: null), and their
 * records one behind the other: the record separator, which no JSON text holds, and the envelope. One text for all of them
 * is one value to send, to store and to decode, whatever their number.
 */

/** One event as it lies in the log, its envelope not yet looked into. */
export interface LogRecord {
  partition: number
  seq: number
  prev: number | null
  envelope: string
}

export type Entry = [id: string, fields: [prevs: string, records: string]]

export const separator = '\x1e'

export const lastSeqOf = ([id]: Entry): number => Number(id.slice(0, id.indexOf('-')))

export function countOf([, [prevs]]: Entry): number {
  let count = 1
  for (let at = prevs.indexOf(' '); at !== -1; at = prevs.indexOf(' ', at + 1)) count += 1
  return count
}

export const firstSeqOf = (entry: Entry): number => lastSeqOf(entry) - countOf(entry) + 1

export const prevOf = (text: string): number | null => (text === '' ? null : Number(text))

export const envelopesOf = ([, [, records]]: Entry): string[] => records.slice(1).split(separator)

/** The events of one entry that lie above `after`. */
export function entryRecords(partition: number, entry: Entry, after: number): LogRecord[] {
  const [prevs, envelopes] = [entry[1][0].split(' '), envelopesOf(entry)]
  const firstSeq = lastSeqOf(entry) - prevs.length + 1
  const records: LogRecord[] = []
  for (let i = Math.max(0, after - firstSeq + 1); i < prevs.length; i += 1)
    records.push({ partition, seq: firstSeq + i, prev: prevOf(prevs[i]!), envelope: envelopes[i]! })
  return records
}
