/** Networks as people write them: CIDRs such as `10.0.0.0/8` and `::1/128`. */
import { isIP } from 'node:net'
import ipaddr from 'ipaddr.js'
import type { Parsed } from './duration.ts'

/** This machine, as seen from itself. */
export const loopback = ['127.0.0.0/8', '::1/128'] as const

/** A list, or a text with commas between them. */
export function parseNetworks(value: unknown): Parsed<readonly string[]> {
  const list = typeof value === 'string' ? value.split(',').map((each) => each.trim()) : value
  if (Array.isArray(list) && list.every(isNetwork)) return { ok: true, value: list }
  return { ok: false, problem: 'must be networks such as 10.0.0.0/8 or fd00::/8' }
}

export const isNetwork = (value: unknown): value is string =>
  typeof value === 'string' && isIP(value.split('/')[0]!) !== 0 && ipaddr.isValidCIDR(value)
