/** Batches as the sink sends them, signed, and a plain way to post them. */
import { randomUUID } from 'node:crypto'
import type { Header } from '../../src/envelope.ts'
import { contentType, type Format, renderEvent, wrapping } from '../../src/sinks/webhook/format.ts'
import { signedHeaders } from '../../src/webhook-signature.ts'

export const secret = `whsec_${Buffer.alloc(32, 7).toString('base64')}`

export interface WebhookEvent extends Partial<Header> {
  seq: number
  prev?: number
  /** As JSON text. */
  json?: string
}

export interface BatchOptions {
  id?: string
  format?: Format
  secrets?: readonly string[]
  timestamp?: number
  subscription?: string
}

export interface WebhookRequest {
  id: string
  headers: Record<string, string>
  body: string
}

/** Events of partition 3; of tenant acme and key order:1 unless they say otherwise. */
export function batchOf(events: readonly WebhookEvent[], options: BatchOptions = {}): WebhookRequest {
  const { format = 'busbar', subscription = 'acme-erp' } = options
  const texts = events.map(({ seq, prev, json = 'null', ...header }) => {
    const line = JSON.stringify({ type: 'order.paid', tenant: 'acme', key: 'order:1', ...header })
    return renderEvent(format, { partition: 3, seq, prev: String(prev ?? ''), envelope: `${line}\n${json}` })
  })
  const { start, end } = wrapping(format, subscription)
  return requestOf(start + texts.join(',') + end, { ...options, type: contentType[format] })
}

/** A signed request with any body. */
export function requestOf(body: string, options: BatchOptions & { type?: string } = {}): WebhookRequest {
  const { id = randomUUID(), secrets = [secret], timestamp = Math.floor(Date.now() / 1_000) } = options
  const headers = signedHeaders({ id, timestamp, body }, secrets)
  return { id, headers: { 'content-type': options.type ?? 'application/json', ...headers }, body }
}

export interface WebhookAnswer {
  status: number
  text: string
  /** The problem's code; undefined with 204. */
  code: string | undefined
}

export async function post(
  url: string,
  { headers, body }: Pick<WebhookRequest, 'headers' | 'body'>,
): Promise<WebhookAnswer> {
  return readAnswer(await fetch(url, { method: 'POST', headers, body }))
}

export async function readAnswer(response: Response): Promise<WebhookAnswer> {
  const text = await response.text()
  const isProblem = response.headers.get('content-type') === 'application/problem+json'
  return { status: response.status, text, code: isProblem ? JSON.parse(text).code : undefined }
}
