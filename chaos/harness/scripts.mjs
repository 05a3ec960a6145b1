/** The scripts of queues and routing by the bytes of a command: which one it calls, with which keys and arguments. */
import * as lanes from '../../dist/lanes/scripts.js'
import * as route from '../../dist/route/scripts.js'

const namesOf = {
  lanes: 'make accept send claim settle renew extend enter pause peek redrive discard remove fsck'.split(' '),
  route: 'put table commit remove removed fsck'.split(' '),
}
const scriptsOf = (exported, names, prefix = '') => {
  const all = new Map(Object.entries(exported))
  return names.map((name) => [`${prefix}${name}`, all.get(`${name}Script`)])
}
const rows = [...scriptsOf(lanes, namesOf.lanes), ...scriptsOf(route, namesOf.route, 'route ')]

/** Every script of lanes/ and route/. A claim without a lease is called pop: it is safe against other things. */
export const scriptNames = [...rows.map(([name]) => name), 'pop']

const bySha = new Map(rows.map(([name, { sha }]) => [sha, name]))
const bySource = new Map(rows.map(([name, { source }]) => [source, name]))
const bySha1 = /^\*\d+\r\n\$7\r\nevalsha\r\n\$40\r\n([0-9a-f]{40})\r\n/i
const bySource1 = /^\*\d+\r\n\$4\r\neval\r\n\$(\d+)\r\n/i

/** How many arguments every script of a store is given before its own: where a claim has its token. */
export const commonArgs = lanes.claimScript
  .args({ keys: {}, token: 'here', n: 1, leaseMs: 1, worker: '', start: '' })
  .indexOf('here')
const mostCommon = 3 + 14 // with the script, how many keys there are, and those

/** Answers the script's name, or undefined for any other command. */
export function scriptOf(frame) {
  const start = frame.toString('latin1', 0, 80)
  const sha = bySha1.exec(start)?.[1]
  const name = sha ? bySha.get(sha) : nameOfSource(frame, bySource1.exec(start))
  return name === 'claim' && readCall(frame, commonArgs + 1).args[commonArgs] === '' ? 'pop' : name
}

function nameOfSource(frame, found) {
  if (!found) return undefined
  const at = found[0].length
  return bySource.get(frame.toString('utf8', at, at + Number(found[1])))
}

/** Answers { queue, args }, the arguments only as far as they are asked for. */
export function readCall(frame, most = Number.POSITIVE_INFINITY) {
  const words = []
  let at = frame.indexOf('\r\n') + 2
  while (at < frame.length && words.length < mostCommon + most) {
    const endOfLine = frame.indexOf('\r\n', at)
    const start = endOfLine + 2
    const end = start + Number(frame.toString('latin1', at + 1, endOfLine))
    words.push(frame.toString('utf8', start, end))
    at = end + 2
  }
  const keys = Number(words[2])
  return { queue: /\{queue\.([^}]*)\}/.exec(words[3])?.[1], args: words.slice(3 + keys) }
}
