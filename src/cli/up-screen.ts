/** The first screen of `busbar up`: what runs, where, and what to try next. */
import { commandLine, shellWord, shownPath } from './invocation.ts'
import type { Session } from './session.ts'
import { version } from './version.ts'

export interface Running {
  url: string
  redis: string
  namespace: string
  partitions: number
  /** Absolute. */
  dataDir: string
  tokenFile: string
  /** Webhooks may go to this machine. */
  development: boolean
}

export function runningJson(running: Running): Record<string, unknown> {
  return { time: new Date().toISOString(), level: 'info', event: 'up', version, pid: process.pid, ...running }
}

export function runningLines(running: Running, session: Session): string[] {
  const { bold, dim, cyan, yellow } = session.out.colors
  const short = (path: string) => shownPath(path, session.io.cwd)
  const facts = [
    ['HTTP', running.url],
    ['Redis', running.redis],
    ['Namespace', `${running.namespace}, ${running.partitions} partitions`],
    ['Data', short(running.dataDir)],
    ['Token', short(running.tokenFile)],
  ] as const
  return [
    bold(`Busbar ${version} is running.`),
    '',
    ...facts.map(([name, value]) => `  ${dim(name.padEnd(9))}  ${value}`),
    ...(running.development ? ['', yellow('Development: webhooks may go to this machine.')] : []),
    '',
    'Try next, in a second terminal:',
    '',
    ...commandsToTry(running, session).map((line) => `  ${cyan(line)}`),
    '',
    dim('Ctrl-C stops it. The log:'),
  ]
}

export function commandsToTry({ url, tokenFile }: Running, session: Session): string[] {
  const token = shellWord(shownPath(tokenFile, session.io.cwd))
  return [
    commandLine(session, `publish order.paid '{"total":42}' --key order:42`),
    commandLine(session, `tail 'order.*' --since beginning`),
    commandLine(session, `queue put billing --match 'order.*' --from beginning`),
    `curl ${url}/v1/events -H "Authorization: Bearer $(cat ${token})" \\`,
    `  -H 'Content-Type: application/json' -d '{"type":"order.paid","key":"order:42","data":{"total":43}}'`,
  ]
}
