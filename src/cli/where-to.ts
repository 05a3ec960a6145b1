/** Where webhooks may go is for the settings to say, of each process: this one tests and takes definitions, another one posts. */
import type { Session } from './session.ts'

/** Whoever is refused on a machine of their own wants to know what would let it through. */
export function sayWhereTo({ out }: Session): void {
  if (out.json) return
  out.note(
    '--webhooks-development allows this machine and http, --webhooks-allow and --webhooks-allow-http what else is wanted; the process that posts needs the same settings.',
  )
}
