/**
 * Server-sent events as text (WHATWG HTML §9.2).
 *
 * A frame ends with an empty line; data of several lines takes one `data:` line each, which the receiver joins with
 * "\n" again. The format knows no other line end: a carriage return between two tokens of JSON arrives as "\n".
 */
export interface Frame {
  /** What the receiver sends back as Last-Event-ID. */
  id?: string
  /** Default `message`. */
  event?: string
  data: string
}

export function writeFrame({ id, event, data }: Frame): string {
  let text = id === undefined ? '' : `id: ${id}\n`
  if (event !== undefined) text += `event: ${event}\n`
  for (const line of data.split(lineEnd)) text += `data: ${line}\n`
  return `${text}\n`
}

const lineEnd = /\r\n|\n|\r/

/** Sets the receiver's Last-Event-ID without an event, and how long it waits before it connects again. */
export const writeOpening = ({ id, retryMs }: { id: string; retryMs: number }): string =>
  `retry: ${retryMs}\nid: ${id}\n\n`

/** A comment that keeps idle connections open, and the place that was reached meanwhile. */
export const writeKeepAlive = (id: string): string => `: keep-alive\nid: ${id}\n\n`
