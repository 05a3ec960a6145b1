/** Log lines that stay below a first screen: held back until it is written, except for a warning that someone waits for. */
import type { TelemetryEvent, TelemetryListener } from '../runtime/telemetry.ts'
import { createLog } from './log-lines.ts'
import type { Session } from './session.ts'

export interface HeldLog {
  readonly listener: TelemetryListener
  find(name: TelemetryEvent['name']): TelemetryEvent | undefined
  /** Writes what was held back; from now on lines come at once. */
  release(): void
}

export function createHeldLog(session: Session): HeldLog {
  const { out } = session
  const write = (line: string) => void out.print(line)
  const log = createLog({ json: out.json, from: session.logLevel('info'), colors: out.colors, write })
  let held: TelemetryEvent[] | undefined = []
  const seen = new Map<string, TelemetryEvent>()
  return {
    listener(event) {
      if (held) seen.set(event.name, event)
      if (held && (event.level === 'info' || event.level === 'debug')) held.push(event)
      else log(event)
    },
    find: (name) => seen.get(name),
    release() {
      for (const event of held ?? []) log(event)
      held = undefined
    },
  }
}
