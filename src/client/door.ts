/** What each kind of server is given: a receiver with its handler. */
import { BusbarError } from '../errors.ts'
import type { Answer } from './answer.ts'

/** Of any server: an object by name, or one that is asked. */
export type HeadersLike =
  | { get(name: string): string | null }
  | Readonly<Record<string, string | readonly string[] | undefined>>

export interface Door {
  maxBytes: number
  /** Throws what the sender is to be told. */
  handle(headers: HeadersLike, body: string | Uint8Array): Promise<Answer>
  refuse(error: unknown): Answer
}

/** Names are told apart without regard to case. */
export function headerOf(headers: HeadersLike, name: string): string | undefined {
  if (isAsked(headers)) return headers.get(name) ?? undefined
  const value = headers[name] ?? Object.entries(headers).find(([given]) => given.toLowerCase() === name)?.[1]
  return typeof value === 'string' ? value : value?.[0]
}

const isAsked = (headers: HeadersLike): headers is { get(name: string): string | null } =>
  typeof headers.get === 'function'

export const wrongMethod = (method: string, url: string): BusbarError =>
  BusbarError.of('ROUTE_NOT_FOUND', { method, path: url.split('?', 1)[0]!.slice(0, 200) })
