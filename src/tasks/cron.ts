/** When a cron pattern ticks, in its time zone. A calculator only: who waits for a tick has the clock. */
import { Cron } from 'croner'
import type { Parsed } from '../duration.ts'
import { shown } from '../errors.ts'

export interface Ticks {
  /** The first tick after this instant, both in ms since the epoch; undefined when there is none any more. */
  after(ms: number): number | undefined
}

const maxLength = 200
const nicknames = /^@(yearly|annually|monthly|weekly|daily|hourly)$/

/**
 * Five fields, six with seconds first, or a nickname like `@daily`. On the day on which clocks go forward a fixed time in
 * the lost hour ticks at its end; on the day on which they go back it ticks once.
 */
export function parseCron(cron: unknown, timezone: unknown): Parsed<Ticks> {
  const refused = (problem: string) => ({ ok: false, problem }) as const
  if (!isZone(timezone)) return refused(`timezone must be a name like "Europe/Berlin" or "UTC"; got ${shown(timezone)}`)
  const form = `cron must be five fields like "30 2 * * *", or six with seconds first; got ${shown(cron)}`
  if (typeof cron !== 'string' || cron.length > maxLength) return refused(form)
  const text = cron.trim()
  // The library also takes dates, and `?` for the moment at which it reads the pattern: both mean another thing in each process.
  if (text.includes('?') || !(nicknames.test(text) || [5, 6].includes(text.split(/\s+/).length))) return refused(form)
  try {
    const pattern = new Cron(text, { timezone, paused: true })
    if (!pattern.nextRun(new Date())) return refused(`cron must have a next tick; ${shown(cron)} has none`)
    return { ok: true, value: { after: (ms) => pattern.nextRun(new Date(ms))?.getTime() } }
  } catch (error) {
    return refused(`${form} (${(error as Error).message.replace(/^CronPattern: /, '')})`)
  }
}

function isZone(timezone: unknown): timezone is string {
  if (typeof timezone !== 'string') return false
  try {
    return new Intl.DateTimeFormat('en', { timeZone: timezone }) !== undefined
  } catch {
    return false
  }
}
