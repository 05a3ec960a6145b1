/** Which faults met which phases. A fault that strikes a worker counts once; one that strikes Redis counts every worker. */

/** Answers fault → phase → hits. */
export function countCells(faults, faultNames, phases) {
  const cells = new Map(faultNames.map((name) => [name, new Map(phases.map((phase) => [phase, 0]))]))
  for (const { fault, phase, phases: met } of faults) {
    const row = cells.get(fault)
    for (const one of phase === undefined ? met : [phase]) row.set(one, row.get(one) + 1)
  }
  return cells
}

export function findEmptyCells(cells) {
  return [...cells].flatMap(([fault, row]) =>
    [...row].filter(([, hits]) => hits === 0).map(([phase]) => `${fault} never met a worker in phase "${phase}"`),
  )
}

/** At least half of the kills must have met work in flight: to kill the idle shows nothing. */
export function findIdleKills(faults, killName) {
  const kills = faults.filter(({ fault }) => fault === killName)
  const busy = kills.filter(({ phases }) => phases.some((phase) => phase !== 'idle')).length
  return {
    kills: kills.length,
    busy,
    found: busy * 2 < kills.length ? [`only ${busy} of ${kills.length} kills met work in flight`] : [],
  }
}
